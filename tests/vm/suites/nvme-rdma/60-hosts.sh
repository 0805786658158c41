# Several hosts at once.
# shellcheck shell=bash

test_two_hosts_at_once() {
  guest << 'E'
connect "$PEER_A"
nvme connect -t rdma -a "$PEER_B" -s "$PORT" -n "$NQN" --hostnqn="$HOST_2" --hostid="${HOST_2##*uuid:}"
second() { grep -l "$HOST_2" /sys/class/nvme/nvme*/hostnqn | grep -o 'nvme[0-9]*' | tail -n 1; }
eventually 10 second
verified one "$(device 1)" --rw=randwrite --bs=4k --iodepth=16 --size=3m &
verified two "$(device 2)" --rw=randwrite --bs=64k --iodepth=8 --size=16m
wait $!
E
  [ "$(daemon --json session ls | jq -r '.[].host' | sort -u | wc -l)" = 2 ]
  guest <<< 'disconnect'
  [ "$(peer_session_count)" = 0 ]
}

# What one host writes by RDMA, another reads by TCP.
test_rdma_and_tcp_tell_the_same_bytes() {
  daemon portal create "nvme+tcp://$PEER_B:$PORT"
  guest << 'E'
connect "$PEER_A"
dd if=/dev/urandom of=/tmp/random bs=1M count=8 status=none
dd if=/tmp/random of="$(device 1)" bs=1M oflag=direct status=none
disconnect
TRANSPORT=tcp connect "$PEER_B"
dd if="$(device 1)" bs=1M count=8 iflag=direct status=none | cmp - /tmp/random
disconnect
E
  daemon portal remove "nvme+tcp://$PEER_B:$PORT" --force
}

test_a_host_that_is_not_allowed_is_refused() {
  peer_volume_create closed 16 4096
  peer_target_create "$NQN-closed" "$HOST_2"
  peer_namespace_add "$NQN-closed" 1 closed
  guest << 'E'
rejected() { refused 'could not add new controller' nvme connect -t rdma -a "$PEER_A" "$@"; }
dmesg --clear
rejected -s "$PORT" -n "$NQN-closed"
dmesg | grep -F "$NQN-closed is not allowed"
rejected -s "$PORT" -n "$NQN-none"
dmesg | grep -F "Connect Invalid Data Parameter, subsysnqn \"$NQN-none\""
rejected -s 4421 -n "$NQN"
dmesg | grep -F 'Connect rejected: status 8 (invalid service ID)'
E
  peer_target_remove "$NQN-closed"
  daemon volume remove closed --force
}

# Peers guess keys, send what is no capsule or too long, too many commands, garbage, and requests without end; all from the wire.
test_a_host_beside_hostile_peers_notices_nothing() {
  guest << 'E'
register_not
connect "$PEER_A"
dmesg --clear
io_started beside "$(device 1)" timed_for_a_while beside "$(device 1)"
E
  harm_from_the_wire hostile_peers "$PEER_A:$PORT"
  guest << 'E'
io_ended beside 60
not_delayed beside "$(device 1)"
nothing_was_lost
disconnect
register_memory
E
  [ "$(peer_session_count)" = 0 ]
}
