# rdma-core's rping, which reads and writes its client's memory, as either end, over IPv4 and over IPv6.
# shellcheck shell=bash

PORT=7174
COUNT=50

test_rping_asks_software() {
  guest PORT="$PORT" COUNT="$COUNT" << 'E'
for address in "$SOFT_4" "$SOFT_6"; do
  answered ip netns exec peer /share/fabric_ping serve soft "$address" "$PORT"
  rping_asks "$address" "$COUNT"
  told "served $COUNT rounds"
done
E
}

test_rping_asks_an_adapter() {
  guest PORT="$PORT" COUNT="$COUNT" << 'E'
for address in "$HW_4" "$HW_6"; do
  answered /share/fabric_ping serve hw "$address" "$PORT"
  rping_asks "$address" "$COUNT"
  told "served $COUNT rounds"
done
E
}

test_software_asks_rping() {
  guest PORT="$PORT" COUNT="$COUNT" << 'E'
for ends in "$HW_4 $SOFT_4" "$HW_6 $SOFT_6"; do
  read -r address from <<< "$ends"
  rping -s -a "$address" -p "$PORT" -C "$COUNT" -S 1000 -V &
  rping=$!
  eventually 10 listens "$PORT"
  ip netns exec peer /share/fabric_ping ask soft "$from" "$address" "$PORT" "$COUNT"
  wait "$rping"
done
E
}

test_an_adapter_asks_rping() {
  guest PORT="$PORT" COUNT="$COUNT" << 'E'
for address in "$HW_4" "$HW_6"; do
  rping -s -a "$address" -p "$PORT" -C "$COUNT" -S 1000 -V &
  rping=$!
  eventually 10 listens "$PORT"
  /share/fabric_ping ask hw "$address" "$address" "$PORT" "$COUNT"
  wait "$rping"
done
E
}
