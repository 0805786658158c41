# Connecting and disconnecting, over and over.
# shellcheck shell=bash

teardown() { guest <<< 'not_connected || disconnect'; }

test_many_rounds() { rounds_leave_nothing "${ROUNDS:-20}"; }

test_disconnect_under_io_ends_cleanly() {
  guest << 'E'
connect "$PEER_A"
fio --name=cut --filename="$(device 1)" --ioengine=libaio --direct=1 --rw=randrw --bs=4k --iodepth=32 --size=64m \
  --time_based --runtime=200 > /tmp/cut.out 2>&1 &
job=$!
eventually 60 is_busy "$(device 1)"
nvme disconnect -n "$NQN"
refused wait "$job"
eventually 10 not_connected
connect "$PEER_A"
verified again "$(device 1)" --rw=randwrite --bs=4k --iodepth=8 --size=2m
disconnect
E
}
