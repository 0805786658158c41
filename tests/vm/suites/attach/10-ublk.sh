# Disks by ublk.
# shellcheck shell=bash

setup() {
  needs_modules ublk_drv
  guest <<< 'modprobe ublk_drv'
}
teardown() { :; }

test_every_protocol_reaches_the_same_bytes() {
  guest << 'G'
head -c 4M /dev/urandom > /tmp/data
for url in "$(nvme)" "iscsi://$PEER_A:$ISCSI_PORT/$IQN/0"; do
  attached disk "$url"
  [[ $DISK = /dev/ublkb* ]]
  has_size_mib "$DISK" "$DISK_MIB"
  same "$(queue_of "$DISK" logical_block_size)" 512 "bytes of a block"
  same "$(queue_of "$DISK" write_cache)" "write back" "the write cache"
  dd if=/tmp/data of="$DISK" bs=1M oflag=direct conv=fsync status=none
  dd if="$DISK" bs=64k count=64 iflag=direct status=none | cmp - /tmp/data
  blkdiscard --offset 1M --length 1M "$DISK"
  dd if="$DISK" bs=1M skip=1 count=1 iflag=direct status=none | cmp -n 1048576 - /dev/zero
  blkdiscard --zeroout --offset 2M --length 1M "$DISK"
  dd if="$DISK" bs=1M skip=2 count=1 iflag=direct status=none | cmp -n 1048576 - /dev/zero
  verified by-ublk "$DISK" --rw=randwrite --bs=4k --iodepth=16 --size=4m
  detached disk
  [ ! -e "$DISK" ]
done
G
}

test_blocks_of_4096_bytes_and_read_only() {
  guest << 'G'
attached disk "$(nvme "?ns=2")" --read-only
same "$(queue_of "$DISK" logical_block_size)" 4096 "bytes of a block"
same "$(blockdev --getro "$DISK")" 1 "whether it is read-only"
dd if="$DISK" of=/dev/null bs=4096 count=4 iflag=direct status=none
not dd if=/dev/zero of="$DISK" bs=4096 count=1 oflag=direct status=none
detached disk
G
}

test_a_disk_in_use_stays() {
  guest << 'G'
attached disk "$(nvme)"
mkfs.ext4 -q -F "$DISK"
mkdir -p /mnt/disk
mount "$DISK" /mnt/disk
refused "is in use" detached disk
umount /mnt/disk
detached disk
G
}

test_ext4_holds_a_tree() {
  guest << 'G'
attached disk "$(nvme)"
holds_a_tree "$DISK" mkfs.ext4 -q -F
detached disk
G
}

# What the process leaves goes away with the next disk of the name.
test_a_killed_process_leaves_nothing_for_long() {
  guest << 'G'
attached disk "$(nvme)"
kill -KILL "$(server_of disk)"
gone() { [ ! -e "$DISK" ] || not dd if="$DISK" of=/dev/null bs=4k count=1 iflag=direct status=none; }
eventually 20 gone
first=$DISK
attached disk "$(nvme)"
same "$DISK" "$first" "the device, whose number is free again"
verified after "$DISK" --rw=randwrite --bs=4k --iodepth=8 --size=1m
detached disk
G
}
