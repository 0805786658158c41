# Packets are lost, twisted in order, doubled and damaged, of either direction; data are right all the same.
#
# Losses are tested without registration (register_not), and once with it, where the host has to connect again. rdma_rxe takes up one
# loss per message at once, and waits half a second for each other; so messages are few.
# shellcheck shell=bash

FAST_LOSS="--keep-alive-tmo=5 --reconnect-delay=1 --ctrl-loss-tmo=600"

setup() {
  needs_modules sch_netem sch_ingress cls_matchall act_mirred ifb
  guest << 'E'
register_not
echo 16 > /proc/sys/vm/nr_hugepages
connect "$PEER_A"
E
}
teardown() {
  guest << 'E'
undisturbed
not_connected || disconnect
register_memory
E
}

test_one_packet_in_a_hundred_is_lost() {
  guest << 'E'
disturbed loss 1%
verified_in_one_piece lossy "$(device 2)" "$(device 1)"
lost_both_ways
undisturbed
E
  # No connection was lost with them.
  [ "$(peer_session_count)" = 1 ]
}

# Few packets are held back: rdma_rxe as the target's adapter loses its queue pair where what it reads comes out of order.
test_order_and_copies() {
  guest << 'E'
disturbed delay 1ms reorder 98% duplicate 2%
rxe_counts duplicate_request \
  verified twisted "$(device 1)" --rw=randwrite --bs=16k --iodepth=8 --size=4m --mem=shmhuge
reordered_both_ways
undisturbed
E
}

test_damage_is_seen() {
  guest << 'E'
disturbed corrupt 1%
asked_again_both_ways verified_in_one_piece damaged "$(device 2)" "$(device 1)"
undisturbed
E
  [ "$(peer_session_count)" = 1 ]
}

test_a_host_that_lost_its_queues_connects_again() {
  guest FAST_LOSS="$FAST_LOSS" << 'E'
disconnect
register_memory
# shellcheck disable=SC2086
connect "$PEER_A" $FAST_LOSS
io_started registered "$(device 1)" verified_for_a_while registered "$(device 1)"
disturbed loss 100%
# shellcheck disable=SC2046
back() { live $(controllers); }
lost() { ! back; }
eventually 40 lost
# The target may have nothing in flight then.
netem_counts drops eth0
undisturbed
eventually 60 back
io_ended registered 60
E
}
