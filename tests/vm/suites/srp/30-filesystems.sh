# File systems on a LUN: a tree copied, remounted and compared.
# shellcheck shell=bash

setup() {
  needs_modules ext4 xfs
  attach_host
}
teardown() { detach_host; }

test_ext4_holds_a_tree() { guest <<< 'holds_a_tree "$(disk 0)" mkfs.ext4 -q -F'; }
test_xfs_holds_a_tree() { guest <<< 'holds_a_tree "$(disk 1)" mkfs.xfs -q -f'; }
