# fio writes, reads back and compares checksums.
# shellcheck shell=bash

setup() { connect_host; }
teardown() { disconnect_host; }

test_random_4k() { guest <<< 'verified random-4k "$(device 2)" --rw=randwrite --bs=4k --iodepth=32 --size=4m'; }

test_random_512() { guest <<< 'verified random-512 "$(device 1)" --rw=randwrite --bs=512 --iodepth=32 --size=3m'; }

test_sequential_128k() {
  guest <<< 'verified sequential "$(device 1)" --rw=write --bs=128k --iodepth=8 --size=24m'
}

test_sizes_beyond_one_transfer() { guest <<< 'verified large "$(device 1)" --rw=write --bs=2m --iodepth=4 --size=32m'; }

# Sizes on either side of what fits in a capsule, not aligned to anything.
test_odd_sizes() {
  guest <<< 'verified odd "$(device 1)" --rw=randwrite --bsrange=512-68k --bs_unaligned=0 --blockalign=512 --iodepth=16 --size=12m'
}

test_mixed_jobs() {
  guest << 'E'
for half in 0 1; do
  verified "mixed-$half" "$(device 1)" --rw=randrw --bssplit=512/10:4k/50:16k/20:64k/20 --iodepth=16 \
    --offset="$((half * 64))m" --size=16m --verify_backlog=128 &
  jobs[half]=$!
done
for job in "${jobs[@]}"; do wait "$job"; done
E
}
