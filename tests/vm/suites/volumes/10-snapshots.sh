# Snapshots and clones of a volume that a host writes to.
# shellcheck shell=bash

setup() {
  needs_modules ext4 xfs
  peer_volume_create ext4 64 512
  peer_volume_create xfs 320 4096
  offer 1 ext4
  offer 2 xfs
  connect_host
}
teardown() { disconnect_host; }

test_a_snapshot_of_a_mounted_ext4_mounts_elsewhere() {
  guest <<< 'made_with_tree "$(device 1)" mkfs.ext4 -q -F'
  daemon volume snapshot ext4 --name ext4-now
  offer 11 ext4-now
  guest << 'E'
rm -r /mnt/disk/tree
sync
snapshot=$(namespace_comes 11)
same "$(cat "/sys/block/${snapshot#/dev/}/ro")" 1 "read-only"
mkdir -p /mnt/elsewhere
mount -o ro,noload "$snapshot" /mnt/elsewhere
has_tree /mnt/elsewhere
refused 'no such file' ls /mnt/disk/tree
umount /mnt/elsewhere
E
}

test_a_clone_is_written_beside_its_origin() {
  daemon volume clone ext4-now --name ext4-trial
  offer 12 ext4-trial
  guest << 'E'
trial=$(namespace_comes 12)
mkdir -p /mnt/elsewhere
# Its journal is replayed: the snapshot is of a mounted file system.
mount "$trial" /mnt/elsewhere
has_tree /mnt/elsewhere
echo "of the clone alone" > /mnt/elsewhere/note
umount /mnt/elsewhere
checked "$trial" ext4
refused 'no such file' ls /mnt/disk/note
umount /mnt/disk
checked "$(device 1)" ext4
E
}

test_a_volume_is_rolled_back_to_its_snapshot() {
  daemon volume rollback ext4 --to ext4-now --force
  guest << 'E'
# The host has read other blocks before.
blockdev --flushbufs "$(device 1)"
mounted "$(device 1)"
has_tree
umount /mnt/disk
checked "$(device 1)" ext4
E
}

test_a_snapshot_of_a_mounted_xfs_mounts_elsewhere() {
  guest <<< 'made_with_tree "$(device 2)" mkfs.xfs -q -f'
  daemon volume snapshot xfs --name xfs-now
  offer 21 xfs-now
  daemon volume clone xfs-now --name xfs-trial
  offer 22 xfs-trial
  guest << 'E'
rm -r /mnt/disk/tree
sync
snapshot=$(namespace_comes 21)
trial=$(namespace_comes 22)
mkdir -p /mnt/elsewhere
mount -o ro,norecovery,nouuid "$snapshot" /mnt/elsewhere
ls /mnt/elsewhere
umount /mnt/elsewhere
mount -o nouuid "$trial" /mnt/elsewhere
has_tree /mnt/elsewhere
umount /mnt/elsewhere /mnt/disk
checked "$trial" xfs
checked "$(device 2)" xfs
E
}

test_snapshots_come_and_go_under_verified_io() {
  guest <<< 'io_started under "$(device 1)" verified_for_a_while under "$(device 1)"'
  local number
  for number in 1 2 3 4 5 6; do
    daemon volume snapshot ext4 --name "under-$number"
    sleep 0.5
  done
  for number in 3 1 6 2 5 4; do daemon volume rm "under-$number" --force; done
  guest <<< 'io_ended under 60'
}
