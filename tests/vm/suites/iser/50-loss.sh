# Packets are lost, twisted in order and doubled; data are right all the same.
#
# rdma_rxe of Linux 6.12 can't lose packets while it registers memory: a retry registers again what is registered, and
# its queue pair fails without a word. So losses are tested without registration, which ib_iser leaves out for commands
# whose data are in one piece (always_register=N), and once with it, where the session has to be taken up again.
# shellcheck shell=bash

setup() {
  guest << 'G'
rmmod ib_iser
modprobe ib_iser always_register=N
echo 16 > /proc/sys/vm/nr_hugepages
attach "$IQN" "$PEER_A"
G
}
teardown() {
  guest << 'G'
tc qdisc del dev eth0 root 2> /dev/null || :
detach "$IQN"
rmmod ib_iser
modprobe ib_iser
G
}

test_one_packet_in_a_hundred_is_lost() {
  guest << 'G'
tc qdisc replace dev eth0 root netem loss 1%
verified lossy-4k "$(disk 1)" --rw=randwrite --bs=4k --iodepth=16 --size=4m
verified lossy-256k "$(disk 0)" --rw=randwrite --bs=256k --iodepth=4 --size=16m --mem=shmhuge
tc -s qdisc show dev eth0 | tee /tmp/netem
grep -E 'dropped [1-9]' /tmp/netem
tc qdisc del dev eth0 root
G
  # No connection was lost with them.
  [ "$(peer_session_count)" = 1 ]
}

test_order_and_copies() {
  guest << 'G'
tc qdisc replace dev eth0 root netem delay 1ms reorder 90% duplicate 2%
verified twisted "$(disk 0)" --rw=randwrite --bs=16k --iodepth=8 --size=4m --mem=shmhuge
tc qdisc del dev eth0 root
G
}

test_a_session_that_is_lost_is_taken_up_again() {
  guest << 'G'
detach "$IQN"
rmmod ib_iser
modprobe ib_iser
attach "$IQN" "$PEER_A"
tc qdisc replace dev eth0 root netem loss 0.1%
verified registered "$(disk 0)" --rw=randwrite --bs=64k --iodepth=4 --size=16m
tc qdisc del dev eth0 root
eventually 30 logged_in "$(session "$IQN")"
G
}
