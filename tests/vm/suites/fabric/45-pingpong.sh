# rdma-core's ibv_rc_pingpong, as either end. No connection manager takes part: the ends exchange their queue pairs over TCP.
# shellcheck shell=bash

PORT=18516
ROUNDS=200

test_pingpong_asks_software() {
  guest PORT="$PORT" ROUNDS="$ROUNDS" << 'E'
answered ip netns exec peer /share/fabric_pingpong serve soft "$SOFT_4" "$PORT" "$ROUNDS"
pingpong "$SOFT_4"
told "$ROUNDS rounds played"
E
}

test_pingpong_asks_an_adapter() {
  guest PORT="$PORT" ROUNDS="$ROUNDS" << 'E'
answered /share/fabric_pingpong serve hw "$HW_4" "$PORT" "$ROUNDS"
pingpong "$HW_4"
told "$ROUNDS rounds played"
E
}

test_software_asks_pingpong() {
  guest PORT="$PORT" ROUNDS="$ROUNDS" << 'E'
pingpong &
pingpong=$!
eventually 10 is_listening "$PORT"
ip netns exec peer /share/fabric_pingpong ask soft "$SOFT_4" "$HW_4" "$PORT" "$ROUNDS"
wait "$pingpong"
E
}

test_an_adapter_asks_pingpong() {
  guest PORT="$PORT" ROUNDS="$ROUNDS" << 'E'
pingpong &
pingpong=$!
eventually 10 is_listening "$PORT"
/share/fabric_pingpong ask hw "$HW_4" "$HW_4" "$PORT" "$ROUNDS"
wait "$pingpong"
E
}
