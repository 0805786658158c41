# A daemon with several threads for each address, over which sessions are spread.
# shellcheck shell=bash

setup() { peer_has_rdma_threads 2; }
teardown() {
  guest <<< 'not_attached "$IQN" || detach "$IQN"'
  ! daemon portal show "$PORTAL_V6" > /dev/null 2>&1 || daemon portal remove "$PORTAL_V6" --force
  peer_crash
}

PORTAL_V6="iser://[$A_V6]:$PORT"

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
verified threads-4k "$first" --rw=randwrite --bs=4k --iodepth=16 --size=2m &
verified threads-4k-too "$second" --rw=randwrite --bs=4k --iodepth=16 --size=2m
wait $!
verified threads-1m "$first" --rw=write --bs=1m --iodepth=4 --size=8m &
verified threads-1m-too "$second" --rw=write --bs=1m --iodepth=4 --size=8m
wait $!
mkfs.ext4 -qF "$first"
e2fsck -fn "$first"
G
  rdma_threads_share_the_work 2 "$before"
  guest <<< 'detach "$IQN"'
  [ "$(peer_session_count)" = 0 ]
}

test_four_threads_serve_sessions_over_ipv6() {
  local before
  peer_has_rdma_threads 4
  daemon portal create "$PORTAL_V6"
  guest << 'G'
record "$IQN" "[$A_V6]" node.session.nr_sessions=4
node "$IQN" "[$A_V6]" --login
connections_per_thread 4 | tee /tmp/threads
same "$(xargs < /tmp/threads)" "0 1 1 1 2 1 3 1" "threads and their connections"
sessions=(/sys/class/iscsi_session/session*)
for session in "${sessions[@]##*/}"; do eventually 15 device "$session" 1 > /dev/null; done
G
  before=$(peer_rdma_threads_us)
  guest << 'G'
# Each session writes a part of its own.
number=0 jobs=()
for session in /sys/class/iscsi_session/session*; do
  verified "four-$number" "$(device "${session##*/}" 1)" --rw=randwrite --bsrange=4k-256k --blockalign=4k --iodepth=8 \
    --size=2m --offset="$((number * 4))m" &
  jobs+=($!)
  number=$((number + 1))
done
for job in "${jobs[@]}"; do wait "$job"; done
same "$number" 4 sessions
G
  rdma_threads_share_the_work 4 "$before"
  guest <<< 'detach "$IQN"'
  [ "$(peer_session_count)" = 0 ]
}
