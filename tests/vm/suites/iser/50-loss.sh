# Packets are lost, twisted in order and doubled; data are right all the same.
# shellcheck shell=bash

setup() { attach_host; }
teardown() {
  guest <<< 'tc qdisc del dev eth0 root 2> /dev/null || :'
  detach_host
}

test_one_packet_in_a_hundred_is_lost() {
  guest << 'G'
tc qdisc add dev eth0 root netem loss 1%
verified lossy-4k "$(disk 1)" --rw=randwrite --bs=4k --iodepth=16 --size=4m
verified lossy-256k "$(disk 0)" --rw=randwrite --bs=256k --iodepth=4 --size=16m
tc -s qdisc show dev eth0 | tee /tmp/netem
grep -E 'dropped [1-9]' /tmp/netem
tc qdisc del dev eth0 root
G
}

test_order_and_copies() {
  guest << 'G'
tc qdisc add dev eth0 root netem delay 1ms reorder 90% duplicate 2%
verified twisted "$(disk 0)" --rw=randwrite --bs=16k --iodepth=8 --size=4m
tc qdisc del dev eth0 root
G
}
