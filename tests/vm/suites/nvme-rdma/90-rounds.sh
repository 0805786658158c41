# Connecting and disconnecting, over and over: ROUNDS times in the environment, 60 where it does not say.
# shellcheck shell=bash

teardown() { guest <<< 'not_connected || disconnect'; }

test_many_rounds() {
  local before after
  before=$(peer_descriptors)
  guest ROUNDS="${ROUNDS:-60}" << 'E'
for round in $(seq "$ROUNDS"); do
  nvme connect -t rdma -a "$PEER_A" -s "$PORT" -n "$NQN" --nr-io-queues=1 > /dev/null
  [ $((round % 50)) != 0 ] || { eventually 10 device 1 && dd if="$(device 1)" of=/dev/null bs=4k count=1 iflag=direct status=none; }
  nvme disconnect -n "$NQN" > /dev/null
done
eventually 10 not_connected
E
  after=$(peer_descriptors)
  echo "descriptors open: $before before, $after after"
  [ "$after" -le "$before" ]
  [ "$(peer_session_count)" = 0 ]
}

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
