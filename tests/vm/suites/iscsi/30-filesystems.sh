# File systems on a LUN: a tree copied, remounted and compared; discard.
# shellcheck shell=bash

setup() {
  needs_modules ext4 xfs
  attach_host
}
teardown() { detach_host; }

test_ext4_holds_a_tree() { guest <<< 'holds_a_tree "$(disk 0)" mkfs.ext4 -q -F'; }
test_xfs_holds_a_tree() { guest <<< 'holds_a_tree "$(disk 1)" mkfs.xfs -q -f'; }

test_fstrim_gives_memory_back() {
  local empty full after
  guest << 'E'
blkdiscard -f "$(disk 0)"
mkfs.ext4 -q -F "$(disk 0)"
mount "$(disk 0)" /mnt/disk
E
  empty=$(peer_volume_used_bytes disk)
  guest <<< 'head -c 64M /dev/urandom > /mnt/disk/file; sync'
  full=$(peer_volume_used_bytes disk)
  guest << 'E'
rm /mnt/disk/file
sync
fstrim -v /mnt/disk
umount /mnt/disk
E
  after=$(peer_volume_used_bytes disk)
  echo "bytes used: $empty empty, $full with a file, $after after fstrim"
  [ $((full - empty)) -ge $((64 << 20)) ]
  # Not to the byte: metadata of the file system share slabs with the file's ends.
  [ $((full - after)) -ge $((48 << 20)) ]
}
