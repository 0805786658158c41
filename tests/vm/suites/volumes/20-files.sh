# Volumes in files of the daemon's machine.
# shellcheck shell=bash

setup() {
  needs_modules ext4 xfs
  daemon volume create ext4 --file "$FILES_DIR/ext4.img" --size 128M
  daemon volume create xfs --file "$FILES_DIR/xfs.img" --size 320M --block-size 4096
  offer 1 ext4
  offer 2 xfs
  connect_for_long
}
teardown() { disconnect_host; }

test_hosts_see_a_volatile_write_cache() {
  guest << 'E'
same "$(cat /sys/block/"$(basename "$(device 1)")"/queue/write_cache)" "write back" "write cache"
nvme id-ctrl "/dev/$(controllers)" | tee /tmp/controller
grep -E '^vwc *: *(0x)?[1357]' /tmp/controller
E
}

test_io_is_verified() {
  guest <<< 'verified file "$(device 2)" --rw=randwrite --bs=4k --iodepth=16 --size=8m'
}

# What was synced before the daemon was killed is there.
test_mounted_file_systems_survive_a_killed_daemon() {
  guest << 'E'
made_with_tree "$(device 1)" mkfs.ext4 -q -F
umount /mnt/disk
made_with_tree "$(device 2)" mkfs.xfs -q -f
E
  peer_crash
  guest << 'E'
eventually 60 connected_again
umount /mnt/disk
echo 3 > /proc/sys/vm/drop_caches
for nsid_type in "1 ext4" "2 xfs"; do
  read -r nsid type <<< "$nsid_type"
  mounted "$(device "$nsid")"
  has_tree
  umount /mnt/disk
  checked "$(device "$nsid")" "$type"
done
E
}

test_a_volume_grows_with_its_file_under_a_mounted_file_system() {
  guest <<< 'mounted "$(device 1)"'
  daemon volume grow ext4 64M
  [ "$(stat -c %s "$FILES_DIR/ext4.img")" = $((192 << 20)) ]
  guest << 'E'
eventually 10 has_size_mib "$(device 1)" 192
resize2fs "$(device 1)"
has_tree
umount /mnt/disk
checked "$(device 1)" ext4
E
}

test_discarded_blocks_are_holes_of_the_file() {
  guest << 'E'
mounted "$(device 1)"
dd if=/dev/urandom of=/mnt/disk/large bs=1M count=32 conv=fsync status=none
E
  local before_kib after_kib
  before_kib=$(du -k "$FILES_DIR/ext4.img" | cut -f 1)
  guest << 'E'
rm /mnt/disk/large
sync
fstrim /mnt/disk
umount /mnt/disk
E
  after_kib=$(du -k "$FILES_DIR/ext4.img" | cut -f 1)
  echo "$before_kib KiB before, $after_kib KiB after"
  [ "$after_kib" -le $((before_kib - 30 * 1024)) ]
}
