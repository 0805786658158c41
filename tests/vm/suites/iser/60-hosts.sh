# Several sessions at once.
# shellcheck shell=bash

test_two_hosts_by_two_devices() {
  guest << 'G'
attach "$IQN" "$PEER_A"
IFACE=second attach "$IQN" "$PEER_B"
first=$(session "$IQN" "$PEER_A" iser)
second=$(session "$IQN" "$PEER_B" second)
by_iser "$first"
by_iser "$second"
verified one "$(device "$first" 0)" --rw=randwrite --bs=4k --iodepth=16 --size=3m &
verified two "$(device "$second" 1)" --rw=randwrite --bs=64k --iodepth=8 --size=16m
wait $!
G
  [ "$(peer_session_count)" = 2 ]
  guest <<< 'detach "$IQN"'
  [ "$(peer_session_count)" = 0 ]
}

# What one host writes by RDMA, another reads by TCP.
test_rdma_and_tcp_tell_the_same_bytes() {
  daemon portal create "iscsi://$PEER_B:$PORT,$GROUP_B"
  guest << 'G'
attach "$IQN" "$PEER_A"
IFACE=default attach "$IQN" "$PEER_B"
over_rdma=$(device "$(session "$IQN" "$PEER_A" iser)" 0)
over_tcp=$(device "$(session "$IQN" "$PEER_B" default)" 0)
dd if=/dev/urandom of=/tmp/random bs=1M count=8 status=none
dd if=/tmp/random of="$over_rdma" bs=1M oflag=direct status=none
dd if="$over_tcp" bs=1M count=8 iflag=direct status=none | cmp - /tmp/random
detach "$IQN"
G
  daemon portal remove "iscsi://$PEER_B:$PORT,$GROUP_B" --force
}

# Others log in, guess keys, and send what is no PDU, what ends behind its message, data of no task, and too many commands.
test_an_initiator_beside_hostile_ones_notices_nothing() {
  guest << 'G'
register_not
attach "$IQN" "$PEER_A"
dmesg --clear
io_started beside "$(disk 0)" timed_for_a_while beside "$(disk 0)"
G
  harm_from_the_wire hostile_initiators "$PEER_A:$PORT" "$IQN"
  guest << 'G'
io_ended beside 60
not_delayed beside "$(disk 0)"
nothing_was_lost
detach "$IQN"
register_memory
G
}
