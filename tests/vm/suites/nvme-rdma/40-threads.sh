# A daemon with several threads for each address, over which hosts' queues are spread.
# shellcheck shell=bash

setup() { peer_has_rdma_threads 2; }
teardown() {
  guest <<< 'not_connected || disconnect'
  ! daemon portal show "$PORTAL_V6" > /dev/null 2>&1 || daemon portal remove "$PORTAL_V6" --force
  peer_crash
}

PORTAL_V6="nvme+rdma://[$A_V6]:$PORT"

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
verified threads-4k "$(device 2)" --rw=randwrite --bs=4k --iodepth=16 --size=2m --cpus_allowed=0 &
verified threads-4k-too "$(device 1)" --rw=randwrite --bs=4k --iodepth=16 --size=2m --cpus_allowed=1
wait $!
verified threads-1m "$(device 2)" --rw=write --bs=1m --iodepth=4 --size=8m --cpus_allowed=0 &
verified threads-1m-too "$(device 1)" --rw=write --bs=1m --iodepth=4 --size=8m --cpus_allowed=1
wait $!
mkfs.ext4 -qF "$(device 1)"
e2fsck -fn "$(device 1)"
E
  rdma_threads_share_the_work 2 "$before"
  guest <<< 'disconnect'
  [ "$(peer_session_count)" = 0 ]
}

# Two hosts' controllers, each with a queue for administration, two for writing and two for reading: two paths of the same disks.
test_four_threads_serve_two_hosts_over_ipv6() {
  local before
  peer_has_rdma_threads 4
  daemon portal create "$PORTAL_V6"
  guest << 'E'
connect "$A_V6" --nr-io-queues=2 --nr-write-queues=2
# nvme-cli takes the second host's for the first's.
PEER_A=$A_V6 connect_queues "$HOST_2" nr_io_queues=2,nr_write_queues=2 5
for policy in /sys/class/nvme-subsystem/*/iopolicy; do echo round-robin > "$policy"; done
connections_per_thread 4 | tee /tmp/threads
same "$(awk '$2 >= 2 { threads++ } { sum += $2 } END { print threads, sum }' /tmp/threads)" "4 10" "threads, connections"
E
  before=$(peer_rdma_threads_us)
  guest << 'E'
verified four-4k "$(device 2)" --rw=randwrite --bs=4k --iodepth=16 --size=2m --cpus_allowed=0 &
verified four-4k-too "$(device 1)" --rw=randwrite --bs=4k --iodepth=16 --size=2m --cpus_allowed=1
wait $!
verified four-1m "$(device 2)" --rw=write --bs=1m --iodepth=4 --size=8m --cpus_allowed=0 &
verified four-1m-too "$(device 1)" --rw=write --bs=1m --iodepth=4 --size=8m --cpus_allowed=1
wait $!
E
  rdma_threads_share_the_work 4 "$before"
  guest <<< 'disconnect'
  [ "$(peer_session_count)" = 0 ]
}
