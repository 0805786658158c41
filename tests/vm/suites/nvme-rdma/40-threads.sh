# A daemon with two threads for each address, over which hosts' queues are spread.
# shellcheck shell=bash

setup() { peer_has_two_rdma_threads; }
teardown() {
  guest <<< 'not_connected || disconnect'
  peer_crash
}

test_both_threads_serve_queues_of_one_host() {
  local before
  guest << 'E'
connect "$PEER_A" --nr-io-queues=2 --nr-write-queues=2
connections_per_thread 2 | tee /tmp/threads
same "$(awk '$2 >= 2 { threads++ } { sum += $2 } END { print threads, sum }' /tmp/threads)" "2 5" "threads, connections"
E
  before=$(peer_rdma_threads_us)
  guest << 'E'
# On each processor, which has a queue for writing and one for reading.
verified threads-4k "$(device 2)" --rw=randwrite --bs=4k --iodepth=16 --size=4m --cpus_allowed=0 &
verified threads-4k-too "$(device 1)" --rw=randwrite --bs=4k --iodepth=16 --size=4m --cpus_allowed=1
wait $!
verified threads-1m "$(device 2)" --rw=write --bs=1m --iodepth=4 --size=16m --cpus_allowed=0 &
verified threads-1m-too "$(device 1)" --rw=write --bs=1m --iodepth=4 --size=16m --cpus_allowed=1
wait $!
mkfs.ext4 -qF "$(device 1)"
e2fsck -fn "$(device 1)"
E
  rdma_threads_share_the_work 2 "$before"
  guest <<< 'disconnect'
  [ "$(peer_session_count)" = 0 ]
}
