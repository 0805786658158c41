# The same by FUSE and a loop device, as kernels without ublk have it.
# shellcheck shell=bash

setup() { :; }
teardown() { :; }

test_ext4_holds_a_tree() {
  guest << 'G'
attached disk "$(nvme)" --via loop
[[ $DISK = /dev/loop* ]]
holds_a_tree "$DISK" mkfs.ext4 -q -F
detached disk
G
}
