# LUNs that change while a session lasts: the initiator learns of it when it scans again.
# shellcheck shell=bash

setup() { attach_host; }
teardown() {
  peer_volume_resize disk "$DISK_MIB"
  detach_host
}

test_growth_is_seen_after_a_rescan() {
  guest <<< 'dd if=/dev/urandom of=/tmp/tail bs=1M count=1 status=none; dd if=/tmp/tail of="$(disk 0)" bs=1M seek=$((DISK_MIB - 1)) oflag=direct status=none'
  peer_volume_resize disk $((DISK_MIB + 128))
  guest << 'E'
disk=$(disk 0)
iscsiadm -m node -T "$IQN" --rescan
eventually 10 has_size_mib "$disk" $((DISK_MIB + 128))
dd if="$disk" bs=1M skip=$((DISK_MIB - 1)) count=1 iflag=direct status=none | cmp - /tmp/tail
dd if="$disk" bs=1M skip=$((DISK_MIB + 112)) count=16 iflag=direct status=none | cmp -n 16777216 - /dev/zero
verified grown "$disk" --rw=randwrite --bs=16k --iodepth=8 --offset="${DISK_MIB}m" --size=8m
E
}

test_mounted_filesystem_grows() {
  peer_volume_resize disk "$DISK_MIB"
  guest << 'E'
disk=$(disk 0)
iscsiadm -m node -T "$IQN" --rescan
eventually 10 has_size_mib "$disk" "$DISK_MIB"
mkfs.ext4 -q -F "$disk"
mount "$disk" /mnt/disk
cp -a /usr/sbin /mnt/disk/
E
  peer_volume_resize disk $((DISK_MIB + 64))
  guest << 'E'
disk=$(disk 0)
iscsiadm -m node -T "$IQN" --rescan
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

test_added_and_removed_lun_is_seen() {
  guest <<< 'no_device "$(session "$IQN")" 2'
  peer_volume_create extra 64 4096
  peer_namespace_add "$IQN" 2 extra
  guest << 'E'
iscsiadm -m node -T "$IQN" --rescan
eventually 10 disk 2
verified added "$(disk 2)" --rw=randwrite --bs=16k --iodepth=8 --size=4m
E
  peer_namespace_remove "$IQN" 2
  guest << 'E'
refused 'remote i/o error|input/output error' dd if="$(disk 2)" of=/dev/null bs=4k count=1 iflag=direct status=none
echo 1 > "/sys/block/$(basename "$(disk 2)")/device/delete"
no_device "$(session "$IQN")" 2
disk 0
disk 1
E
}

test_locked_volume_refuses_writes() {
  peer_volume_lock disk
  guest << 'E'
refused 'operation not permitted|remote i/o error' dd if=/dev/zero of="$(disk 0)" bs=4k count=1 oflag=direct status=none
dd if="$(disk 0)" of=/dev/null bs=4k count=1 iflag=direct status=none
E
  peer_volume_unlock disk
  guest <<< 'dd if=/dev/zero of="$(disk 0)" bs=4k count=1 oflag=direct status=none'
}
