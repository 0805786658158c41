# rdma-core's rping, which reads and writes its client's memory, as either end.
# shellcheck shell=bash

PORT=7174
COUNT=50

test_rping_asks_software() {
  guest PORT="$PORT" COUNT="$COUNT" << 'E'
answered ip netns exec peer /share/fabric_ping serve soft "$SOFT_4" "$PORT"
rping -c -a "$SOFT_4" -p "$PORT" -C "$COUNT" -V
told "served $COUNT rounds"
E
}

test_rping_asks_an_adapter() {
  guest PORT="$PORT" COUNT="$COUNT" << 'E'
answered /share/fabric_ping serve hw "$HW_4" "$PORT"
rping -c -a "$HW_4" -p "$PORT" -C "$COUNT" -V
told "served $COUNT rounds"
E
}

test_software_asks_rping() {
  guest PORT="$PORT" COUNT="$COUNT" << 'E'
rping -s -a "$HW_4" -p "$PORT" -C "$COUNT" -S 1000 -V &
rping=$!
eventually 10 listens "$PORT"
ip netns exec peer /share/fabric_ping ask soft "$SOFT_4" "$HW_4" "$PORT" "$COUNT"
wait "$rping"
E
}

test_an_adapter_asks_rping() {
  guest PORT="$PORT" COUNT="$COUNT" << 'E'
rping -s -a "$HW_4" -p "$PORT" -C "$COUNT" -S 1000 -V &
rping=$!
eventually 10 listens "$PORT"
/share/fabric_ping ask hw "$HW_4" "$HW_4" "$PORT" "$COUNT"
wait "$rping"
E
}
