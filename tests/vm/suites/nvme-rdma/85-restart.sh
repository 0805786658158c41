# The daemon ends without warning and comes back. What its RAM volumes held is lost by design; its definitions are not, so the
# host takes up where it was.
# shellcheck shell=bash

setup() { guest <<< 'connect "$PEER_A" --keep-alive-tmo=2 --reconnect-delay=1 --ctrl-loss-tmo=60'; }
teardown() { disconnect_host; }

test_io_goes_on_after_a_crash() {
  guest << 'E'
rm -f /tmp/io.*
(
  status=0
  fio --name=through --filename="$(device 1)" --ioengine=libaio --direct=1 --rw=randwrite --bs=4k --iodepth=16 \
    --size=64m --time_based --runtime=10 > /tmp/io.out 2>&1 || status=$?
  echo "$status" > /tmp/io.status
) &
sleep 2
E
  peer_crash
  guest << 'E'
# shellcheck disable=SC2046
back() { live $(controllers) && device 1 && device 2; }
eventually 30 back
eventually 60 test -s /tmp/io.status
same "$(cat /tmp/io.status)" 0 "status of the I/O"
grep -E 'write:|err=' /tmp/io.out
verified after "$(device 1)" --rw=randwrite --bs=4k --iodepth=16 --size=4m
E
}
