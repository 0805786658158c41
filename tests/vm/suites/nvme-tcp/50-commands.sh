# Commands beyond read and write.
# shellcheck shell=bash

setup() { connect_host; }
teardown() { disconnect_host; }

test_discarded_blocks_read_zero_and_give_memory_back() {
  local used_bytes left_bytes
  guest << 'E'
dd if=/dev/urandom of="$(device 1)" bs=1M count=64 oflag=direct status=none
E
  ! peer_can usage || used_bytes=$(peer_volume_used_bytes disk)
  guest << 'E'
disk=$(device 1)
[ "$(cat "/sys/block/${disk#/dev/}/queue/discard_max_bytes")" -gt 0 ]
blkdiscard "$disk"
cmp -n 67108864 "$disk" /dev/zero
E
  if peer_can usage; then
    left_bytes=$(peer_volume_used_bytes disk)
    echo "used $used_bytes bytes, after the discard $left_bytes"
    [ "$used_bytes" -ge 67108864 ]
    [ "$left_bytes" -lt 8388608 ]
  fi
}

test_discard_leaves_the_neighbours() {
  guest << 'E'
disk=$(device 1)
dd if=/dev/urandom of=/tmp/pattern bs=1M count=8 status=none
dd if=/tmp/pattern of="$disk" bs=1M oflag=direct status=none
blkdiscard -o $((1048576 + 512)) -l $((4194304 + 1024)) "$disk"
dd if=/dev/zero of=/tmp/pattern bs=512 seek=2049 count=8194 conv=notrunc status=none
cmp -n 8388608 "$disk" /tmp/pattern
E
}

test_fstrim() {
  local used_bytes left_bytes
  guest << 'E'
mkfs.ext4 -q -F "$(device 1)"
mount "$(device 1)" /mnt/disk
dd if=/dev/urandom of=/mnt/disk/file bs=1M count=64 status=none
sync
rm /mnt/disk/file
sync
E
  ! peer_can usage || used_bytes=$(peer_volume_used_bytes disk)
  guest <<< 'fstrim -v /mnt/disk | tee /tmp/trim; grep -qv "0 B" /tmp/trim; umount /mnt/disk; e2fsck -fn "$(device 1)"'
  if peer_can usage; then
    left_bytes=$(peer_volume_used_bytes disk)
    echo "used $used_bytes bytes, after fstrim $left_bytes"
    [ "$((used_bytes - left_bytes))" -ge $((48 * 1048576)) ]
  fi
}

test_write_zeroes() {
  guest << 'E'
disk=$(device 1)
[ "$(cat "/sys/block/${disk#/dev/}/queue/write_zeroes_max_bytes")" -gt 0 ]
dd if=/dev/urandom of=/tmp/pattern bs=1M count=8 status=none
dd if=/tmp/pattern of="$disk" bs=1M oflag=direct status=none
blkdiscard -z -o 1048576 -l 2097152 "$disk"
nvme write-zeroes "$disk" --start-block=8195 --block-count=99
dd if=/dev/zero of=/tmp/pattern bs=512 seek=2048 count=4096 conv=notrunc status=none
dd if=/dev/zero of=/tmp/pattern bs=512 seek=8195 count=100 conv=notrunc status=none
echo 3 > /proc/sys/vm/drop_caches
cmp -n 8388608 "$disk" /tmp/pattern
E
}

test_flush() { guest <<< 'nvme flush "$(device 1)" --namespace-id=1'; }

test_compare() {
  peer_can compare || skip "this peer has no compare"
  guest << 'E'
disk=$(device 1)
{ head -c 4095 /dev/urandom; printf y; } > /tmp/block
nvme write "$disk" --start-block=16 --block-count=7 --data-size=4096 --data=/tmp/block
nvme compare "$disk" --start-block=16 --block-count=7 --data-size=4096 --data=/tmp/block
printf x | dd of=/tmp/block bs=1 seek=4095 conv=notrunc status=none
refused 'compare failure|0x285' nvme compare "$disk" --start-block=16 --block-count=7 --data-size=4096 --data=/tmp/block
E
}

test_copy_and_verify() {
  peer_can copy || skip "this peer has no copy"
  guest << 'E'
disk=$(device 1)
dd if=/dev/urandom of="$disk" bs=64k count=2 oflag=direct status=none
nvme copy "$disk" --sdlba=4096 --slbs=0,128 --blocks=63,31
nvme verify "$disk" --start-block=4096 --block-count=95
cmp -n 32768 "$disk" <(dd if="$disk" bs=512 skip=4096 count=64 iflag=direct status=none)
cmp -n 16384 <(dd if="$disk" bs=512 skip=128 count=32 iflag=direct status=none) \
  <(dd if="$disk" bs=512 skip=4160 count=32 iflag=direct status=none)
E
}

test_locked_volume_is_read_only() {
  peer_can lock || skip "this peer has no read-only lock"
  guest <<< 'dd if=/dev/urandom of="$(device 2)" bs=1M count=1 oflag=direct status=none; md5sum < <(dd if="$(device 2)" bs=1M count=1 iflag=direct status=none) > /tmp/before'
  peer_volume_lock disk-4k
  guest << 'E'
disk=$(device 2)
read_only() { [ "$(blockdev --getro "$1")" = "$2" ]; }
eventually 10 read_only "$disk" 1
refused 'operation not permitted' dd if=/dev/zero of="$disk" bs=4k count=1 oflag=direct status=none
refused 'write protected' nvme write-zeroes "$disk" --start-block=0 --block-count=0
md5sum < <(dd if="$disk" bs=1M count=1 iflag=direct status=none) | cmp - /tmp/before
E
  peer_volume_unlock disk-4k
  guest << 'E'
disk=$(device 2)
read_only() { [ "$(blockdev --getro "$1")" = "$2" ]; }
eventually 10 read_only "$disk" 0
dd if=/dev/zero of="$disk" bs=4k count=1 oflag=direct status=none
E
}
