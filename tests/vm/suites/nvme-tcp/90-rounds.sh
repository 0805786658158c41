# Connecting and disconnecting, over and over.
# shellcheck shell=bash

teardown() { guest <<< 'not_connected || disconnect'; }

test_many_rounds() { rounds_leave_nothing "${ROUNDS:-20}"; }

test_io_survives_a_disconnect_of_another_connection() {
  guest << 'E'
connect "$PEER_A"
io_started busy "$(device 1)" verified_for_a_while busy "$(device 1)"
for round in 1 2 3 4 5; do
  nvme connect -t tcp -a "$PEER_B" -s "$PORT" -n "$NQN" --nr-io-queues=1
  sleep 0.3
  nvme disconnect -d "$(controllers "$NQN" "$PEER_B")"
done
io_ended busy 60
disconnect
E
}

test_disconnect_under_io_ends_cleanly() { disconnect_under_io; }
