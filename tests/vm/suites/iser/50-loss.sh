# Packets are lost, twisted in order, doubled and damaged, of either direction; data are right all the same.
#
# Losses are tested without registration (register_not), and once with it, where the session has to be taken up again. rdma_rxe takes
# up one loss per message at once, and waits half a second for each other; so messages are few.
# shellcheck shell=bash

setup() {
  needs_modules sch_netem sch_ingress cls_matchall act_mirred ifb
  guest << 'G'
register_not
echo 16 > /proc/sys/vm/nr_hugepages
attach "$IQN" "$PEER_A"
G
}
teardown() {
  guest << 'G'
undisturbed
detach "$IQN"
register_memory
G
}

test_one_packet_in_a_hundred_is_lost() {
  guest << 'G'
disturbed loss 1%
verified_in_one_piece lossy "$(disk 1)" "$(disk 0)"
lost_both_ways
undisturbed
G
  # No connection was lost with them.
  [ "$(peer_session_count)" = 1 ]
}

# Few packets are held back: rdma_rxe as the target's adapter loses its queue pair where what it reads comes out of order.
test_order_and_copies() {
  guest << 'G'
disturbed delay 1ms reorder 98% duplicate 2%
rxe_counts duplicate_request \
  verified twisted "$(disk 0)" --rw=randwrite --bs=16k --iodepth=8 --size=4m --mem=shmhuge
reordered_both_ways
undisturbed
G
}

test_damage_is_seen() {
  guest << 'G'
disturbed corrupt 1%
asked_again_both_ways verified_in_one_piece damaged "$(disk 1)" "$(disk 0)"
undisturbed
G
  [ "$(peer_session_count)" = 1 ]
}

test_a_session_that_is_lost_is_taken_up_again() {
  guest << 'G'
detach "$IQN"
register_memory
attach "$IQN" "$PEER_A"
session=$(session "$IQN")
io_started registered "$(disk 0)" verified_for_a_while registered "$(disk 0)"
disturbed loss 100%
lost() { ! logged_in "$session"; }
eventually 40 lost
# The target may have nothing in flight then.
netem_counts drops eth0
undisturbed
eventually 60 logged_in "$session"
io_ended registered 60
G
}
