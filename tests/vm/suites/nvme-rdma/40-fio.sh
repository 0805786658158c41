# fio writes, reads back and compares checksums, at both path MTUs.
# shellcheck shell=bash

setup() { connect_host; }
teardown() {
  guest <<< 'not_connected || disconnect; path_mtu 9000'
}

test_random_4k() {
  guest << 'E'
has_path_mtu rxe0 4096
verified random-4k "$(device 2)" --rw=randwrite --bs=4k --iodepth=32 --size=16m
E
}

test_random_512() { guest <<< 'verified random-512 "$(device 1)" --rw=randwrite --bs=512 --iodepth=32 --size=2m'; }

test_sequential_1m() { guest <<< 'verified large "$(device 1)" --rw=write --bs=1m --iodepth=8 --size=96m'; }

# Sizes on either side of what fits in a capsule.
test_odd_sizes() {
  guest <<< 'verified odd "$(device 1)" --rw=randwrite --bsrange=512-300k --blockalign=512 --iodepth=16 --size=24m'
}

test_discard_and_zeroes() {
  guest << 'E'
disk=$(device 1)
verified before "$disk" --rw=write --bs=64k --iodepth=4 --size=4m
blkdiscard -o 0 -l $((2 << 20)) "$disk"
blkdiscard -z -o $((2 << 20)) -l $((2 << 20)) "$disk"
dd if="$disk" bs=1M count=4 iflag=direct status=none | cmp -n $((4 << 20)) - /dev/zero
E
}

test_path_mtu_1024() {
  guest << 'E'
disconnect
path_mtu 1500
eventually 5 has_path_mtu rxe0 1024
connect "$PEER_A"
verified small-mtu-4k "$(device 2)" --rw=randwrite --bs=4k --iodepth=32 --size=8m
verified small-mtu-1m "$(device 1)" --rw=write --bs=1m --iodepth=4 --size=48m
E
}
