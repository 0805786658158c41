# A daemon with two threads for each address, over which sessions are spread.
# shellcheck shell=bash

setup() { peer_has_two_rdma_threads; }
teardown() {
  guest <<< 'not_attached "$IQN" || detach "$IQN"'
  peer_crash
}

test_both_threads_serve_sessions() {
  local before
  guest << 'G'
attach "$IQN" "$PEER_A"
IFACE=second attach "$IQN" "$PEER_A"
connections_per_thread 2 | tee /tmp/threads
same "$(xargs < /tmp/threads)" "0 1 1 1" "threads and their connections"
G
  before=$(peer_rdma_threads_us)
  guest << 'G'
first=$(device "$(session "$IQN" "$PEER_A" iser)" 0)
second=$(device "$(session "$IQN" "$PEER_A" second)" 1)
verified threads-4k "$first" --rw=randwrite --bs=4k --iodepth=16 --size=4m &
verified threads-4k-too "$second" --rw=randwrite --bs=4k --iodepth=16 --size=4m
wait $!
verified threads-1m "$first" --rw=write --bs=1m --iodepth=4 --size=16m &
verified threads-1m-too "$second" --rw=write --bs=1m --iodepth=4 --size=16m
wait $!
mkfs.ext4 -qF "$first"
e2fsck -fn "$first"
G
  rdma_threads_share_the_work 2 "$before"
  guest <<< 'detach "$IQN"'
  [ "$(peer_session_count)" = 0 ]
}
