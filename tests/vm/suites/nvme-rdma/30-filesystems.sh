# File systems made, filled, checked.
# shellcheck shell=bash

setup() {
  needs_modules ext4 xfs
  connect_host
}
teardown() { disconnect_host; }

test_ext4_holds_a_tree() { guest <<< 'holds_a_tree "$(device 1)" mkfs.ext4 -qF'; }

test_xfs_holds_a_tree() { guest <<< 'holds_a_tree "$(device 2)" mkfs.xfs -qf'; }
