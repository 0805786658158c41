# Namespaces that change while a host is attached: it learns of it by events.
# shellcheck shell=bash

setup() { connect_host; }
teardown() {
  peer_volume_resize disk "$DISK_MIB"
  disconnect_host
}

test_growth_is_seen() {
  guest <<< 'dd if=/dev/urandom of=/tmp/tail bs=1M count=1 status=none; dd if=/tmp/tail of="$(device 1)" bs=1M seek=$((DISK_MIB - 1)) oflag=direct status=none'
  peer_volume_resize disk $((DISK_MIB + 128))
  guest << 'E'
disk=$(device 1)
eventually 10 has_size_mib "$disk" $((DISK_MIB + 128))
dd if="$disk" bs=1M skip=$((DISK_MIB - 1)) count=1 iflag=direct status=none | cmp - /tmp/tail
dd if="$disk" bs=1M skip=$((DISK_MIB + 112)) count=16 iflag=direct status=none | cmp -n 16777216 - /dev/zero
verified grown "$disk" --rw=randwrite --bs=16k --iodepth=8 --offset="${DISK_MIB}m" --size=8m
E
}

test_shrinking_is_seen_and_the_rest_is_gone() {
  peer_volume_resize disk $((DISK_MIB / 2))
  guest EXACT="$(peer_can lba-range && echo yes)" << 'E'
disk=$(device 1)
eventually 10 has_size_mib "$disk" $((DISK_MIB / 2))
dd if="$disk" of=/dev/null bs=1M skip=$((DISK_MIB / 2 - 1)) count=1 iflag=direct status=none
refused "${EXACT:+LBA.*range}" nvme read "$disk" --start-block=$((DISK_MIB * 1024)) --block-count=0 --data-size=512
E
  peer_volume_resize disk "$DISK_MIB"
  guest << 'E'
disk=$(device 1)
eventually 10 has_size_mib "$disk" "$DISK_MIB"
dd if="$disk" bs=1M skip=$((DISK_MIB - 16)) count=16 iflag=direct status=none | cmp -n 16777216 - /dev/zero
E
}

test_mounted_filesystem_grows() {
  guest << 'E'
disk=$(device 1)
mkfs.ext4 -q -F "$disk"
mount "$disk" /mnt/disk
cp -a /usr/sbin /mnt/disk/
E
  peer_volume_resize disk $((DISK_MIB + 64))
  guest << 'E'
disk=$(device 1)
eventually 10 has_size_mib "$disk" $((DISK_MIB + 64))
before=$(df --output=size -m /mnt/disk | tail -n 1)
resize2fs "$disk"
after=$(df --output=size -m /mnt/disk | tail -n 1)
[ "$((after - before))" -gt 50 ]
diff -r --no-dereference /usr/sbin /mnt/disk/sbin
umount /mnt/disk
e2fsck -fn "$disk"
E
}

test_added_and_removed_namespace_is_seen() {
  guest <<< 'no_device 3'
  peer_volume_create extra 64 4096
  peer_namespace_add "$NQN" 3 extra
  guest << 'E'
eventually 10 device 3
verified added "$(device 3)" --rw=randwrite --bs=16k --iodepth=8 --size=8m
E
  peer_namespace_remove "$NQN" 3
  guest << 'E'
eventually 10 no_device 3
device 1
device 2
E
}
