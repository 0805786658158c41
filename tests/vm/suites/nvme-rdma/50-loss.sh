# Packets are lost, twisted in order and doubled; data are right all the same.
#
# rdma_rxe of Linux 6.12 can't lose packets while it registers memory: a retry registers again what is registered, and
# its queue pair fails without a word. So losses are tested without registration, which nvme-rdma leaves out for commands
# whose data are in one piece (register_always=N), and once with it, where the host has to connect again.
# shellcheck shell=bash

FAST_LOSS="--keep-alive-tmo=5 --reconnect-delay=1 --ctrl-loss-tmo=600"

setup() {
  guest << 'E'
rmmod nvme_rdma
modprobe nvme-rdma register_always=N
echo 16 > /proc/sys/vm/nr_hugepages
connect "$PEER_A"
E
}
teardown() {
  guest << 'E'
tc qdisc del dev eth0 root 2> /dev/null || :
not_connected || disconnect
rmmod nvme_rdma
modprobe nvme-rdma
E
}

test_one_packet_in_a_hundred_is_lost() {
  guest << 'E'
tc qdisc replace dev eth0 root netem loss 1%
verified lossy-4k "$(device 2)" --rw=randwrite --bs=4k --iodepth=16 --size=4m
verified lossy-256k "$(device 1)" --rw=randwrite --bs=256k --iodepth=4 --size=16m --mem=shmhuge
tc -s qdisc show dev eth0 | tee /tmp/netem
grep -E 'dropped [1-9]' /tmp/netem
tc qdisc del dev eth0 root
E
  # No connection was lost with them.
  [ "$(peer_session_count)" = 1 ]
}

test_order_and_copies() {
  guest << 'E'
tc qdisc replace dev eth0 root netem delay 1ms reorder 90% duplicate 2%
verified twisted "$(device 1)" --rw=randwrite --bs=16k --iodepth=8 --size=4m --mem=shmhuge
tc qdisc del dev eth0 root
E
}

test_a_host_that_lost_its_queues_connects_again() {
  guest FAST_LOSS="$FAST_LOSS" << 'E'
disconnect
rmmod nvme_rdma
modprobe nvme-rdma
# shellcheck disable=SC2086
connect "$PEER_A" $FAST_LOSS
tc qdisc replace dev eth0 root netem loss 0.1%
verified registered "$(device 1)" --rw=randwrite --bs=64k --iodepth=4 --size=16m
tc qdisc del dev eth0 root
# shellcheck disable=SC2046
back() { live $(controllers); }
eventually 30 back
E
}
