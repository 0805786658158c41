# fio writes, reads back and compares checksums, at both path MTUs.
# shellcheck shell=bash

setup() {
  peer_portal_add "[$A_V6]" "$PORT"
  connect_host
}
teardown() {
  guest <<< 'not_connected || disconnect; path_mtu 9000'
  peer_portal_remove "[$A_V6]" "$PORT"
}

test_random_4k() {
  guest << 'E'
has_path_mtu rxe0 4096
verified random-4k "$(device 2)" --rw=randwrite --bs=4k --iodepth=32 --size=3m
E
}

test_random_512() { guest <<< 'verified random-512 "$(device 1)" --rw=randwrite --bs=512 --iodepth=32 --size=2m'; }

test_sequential_1m() { guest <<< 'verified large "$(device 1)" --rw=write --bs=1m --iodepth=8 --size=24m'; }

# Sizes on either side of what fits in a capsule.
test_odd_sizes() {
  guest <<< 'verified odd "$(device 1)" --rw=randwrite --bsrange=512-300k --blockalign=512 --iodepth=16 --size=6m'
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

test_path_mtu_4096() { both_families 9000 4096; }
test_path_mtu_1024() { both_families 1500 1024; }

# both_families INTERFACE_MTU PATH_MTU: it is that of IPv4 and of IPv6.
both_families() {
  guest INTERFACE_MTU="$1" PATH_MTU="$2" << 'E'
not_connected || disconnect
path_mtu "$INTERFACE_MTU"
eventually 5 has_path_mtu rxe0 "$PATH_MTU"
for address in "$PEER_A" "$A_V6"; do
  connect "$address"
  verified "mtu-$PATH_MTU-4k" "$(device 2)" --rw=randwrite --bs=4k --iodepth=32 --size=2m
  verified "mtu-$PATH_MTU-1m" "$(device 1)" --rw=write --bs=1m --iodepth=4 --size=8m
  disconnect
done
E
}
