# The adapter, or its link, is taken away under a connection: the connection ends cleanly, and the program is told.
# shellcheck shell=bash

PORT=7175

teardown() { guest <<< 'rdma link show rxe0/1 2> /dev/null || rxe_on veth0'; }

test_a_connection_ends_with_its_adapter() {
  guest PORT="$PORT" << 'E'
answered ip netns exec peer /share/fabric_ping serve soft "$SOFT_4" "$PORT"
/share/fabric_hold "$HW_4" "$SOFT_4" "$PORT" > /tmp/hold 2>&1 &
hold=$!
eventually 20 grep -x connected /tmp/hold
rdma link delete rxe0
# The adapter is gone, though the program has not ended.
kill "$hold"
cat /tmp/hold
grep -x disconnected /tmp/hold
grep -x 'the provider has ended: the adapter rxe0 was removed' /tmp/hold
E
}
