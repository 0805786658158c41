# fio writes, reads back and compares checksums.
# shellcheck shell=bash

setup() { attach_host; }
teardown() { detach_host; }

test_random_4k() { guest <<< 'verified random-4k "$(disk 1)" --rw=randwrite --bs=4k --iodepth=32 --size=3m'; }

test_random_512() { guest <<< 'verified random-512 "$(disk 0)" --rw=randwrite --bs=512 --iodepth=32 --size=2m'; }

test_sizes_beyond_one_burst() { guest <<< 'verified large "$(disk 0)" --rw=write --bs=4m --iodepth=4 --size=32m'; }

test_odd_sizes() {
  guest <<< 'verified odd "$(disk 0)" --rw=randwrite --bsrange=512-300k --blockalign=512 --iodepth=16 --size=12m'
}
