# rdma-core's ibv_rc_pingpong, as either end. No connection manager takes part: the ends exchange their queue pairs over TCP.
# It goes over IPv4 and over IPv6, with TCP over IPv4 where ibv_rc_pingpong listens: it does so over one family, as it likes.
# shellcheck shell=bash

PORT=18516
ROUNDS=50

test_pingpong_asks_software() {
  guest PORT="$PORT" ROUNDS="$ROUNDS" << 'E'
for ends in "$HW_4 $SOFT_4" "$HW_6 $SOFT_6"; do
  read -r from address <<< "$ends"
  answered ip netns exec peer /share/fabric_pingpong serve soft "$address" "$PORT" "$ROUNDS"
  pingpong "$from" "$address"
  told "$ROUNDS rounds played"
done
E
}

test_pingpong_asks_an_adapter() {
  guest PORT="$PORT" ROUNDS="$ROUNDS" << 'E'
for address in "$HW_4" "$HW_6"; do
  answered /share/fabric_pingpong serve hw "$address" "$PORT" "$ROUNDS"
  pingpong "$address" "$address"
  told "$ROUNDS rounds played"
done
E
}

test_software_asks_pingpong() {
  guest PORT="$PORT" ROUNDS="$ROUNDS" << 'E'
for ends in "$HW_4 $SOFT_4" "$HW_6 $SOFT_6"; do
  read -r address from <<< "$ends"
  pingpong "$address" &
  pingpong=$!
  eventually 10 is_listening "$PORT"
  ip netns exec peer /share/fabric_pingpong ask soft "$from" "$HW_4" "$PORT" "$ROUNDS"
  wait "$pingpong"
done
E
}

test_an_adapter_asks_pingpong() {
  guest PORT="$PORT" ROUNDS="$ROUNDS" << 'E'
for address in "$HW_4" "$HW_6"; do
  pingpong "$address" &
  pingpong=$!
  eventually 10 is_listening "$PORT"
  /share/fabric_pingpong ask hw "$address" "$HW_4" "$PORT" "$ROUNDS"
  wait "$pingpong"
done
E
}
