# File systems on a namespace: a tree copied, remounted and compared.
# shellcheck shell=bash

setup() {
  needs_modules ext4 xfs
  connect_host
}
teardown() { disconnect_host; }

test_ext4_holds_a_tree() { guest <<< 'holds_a_tree "$(device 1)" mkfs.ext4 -q -F'; }
test_xfs_holds_a_tree() { guest <<< 'holds_a_tree "$(device 2)" mkfs.xfs -q -f'; }
