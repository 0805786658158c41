# The discovery subsystem, and what a controller says of itself.
# shellcheck shell=bash

test_discover_finds_the_target_at_the_portal_asked() {
  guest << 'E'
for address in "$PEER_A" "$PEER_B"; do
  nvme discover -t rdma -a "$address" -s "$PORT" -o json > /tmp/log.json
  cat /tmp/log.json
  jq -r '.records[] | "\(.subnqn) \(.subtype) \(.trtype) \(.adrfam) \(.traddr) \(.trsvcid)"' /tmp/log.json |
    grep -x "$NQN nvme subsystem rdma ipv4 $address $PORT"
done
nvme discover -t rdma -a "$PEER_A" -s "$PORT" > /tmp/log
grep -E 'rdma_prtype: *roce-v2' /tmp/log
grep -E 'rdma_qptype: *connected' /tmp/log
grep -E 'rdma_cms: *rdma-cm' /tmp/log
E
}

test_discover_by_ipv6() {
  daemon portal create "nvme+rdma://[$A_V6]:$PORT"
  guest << 'E'
nvme discover -t rdma -a "$A_V6" -s "$PORT" -o json |
  jq -r '.records[] | "\(.subnqn) \(.trtype) \(.adrfam) \(.traddr)"' | grep -x "$NQN rdma ipv6 $A_V6"
E
  daemon portal remove "nvme+rdma://[$A_V6]:$PORT" --force
}

test_tcp_portals_are_told_as_well() {
  daemon portal create "nvme+tcp://$PEER_A:$PORT"
  guest << 'E'
nvme discover -t rdma -a "$PEER_A" -s "$PORT" -o json | jq -r '.records[] | "\(.subnqn) \(.trtype)"' > /tmp/records
grep -x "$NQN rdma" /tmp/records
grep -x "$NQN tcp" /tmp/records
E
  daemon portal remove "nvme+tcp://$PEER_A:$PORT" --force
}

test_a_controller_says_what_holds_over_rdma() {
  guest << 'E'
connect "$PEER_A"
nvme id-ctrl "/dev/$(controllers)" -o json > /tmp/id.json
same "$(jq -r '"\(.ioccsz) \(.iorcsz) \(.icdoff) \(.msdbd) \(.mdts) \(.sgls)"' /tmp/id.json)" \
  "260 1 0 16 8 $((1 << 20 | 1 << 2 | 1))" "ioccsz iorcsz icdoff msdbd mdts sgls"
disconnect
E
  daemon session ls
}

test_queues_of_other_sizes_and_without_flow_control() {
  guest << 'E'
for size in 16 128 1024; do
  connect "$PEER_A" --queue-size="$size" --nr-io-queues=2
  verified "queue-$size" "$(device 1)" --rw=randwrite --bs=4k --iodepth=64 --size=2m
  disconnect
done
told_without_flow_control 3 connect "$PEER_A" --disable-sqflow --nr-io-queues=2
verified no-flow-control "$(device 1)" --rw=randrw --bs=4k --iodepth=64 --size=2m
disconnect
E
}

test_sessions_tell_their_transport() {
  guest <<< 'connect "$PEER_A"'
  daemon --json session ls | jq -r '.[] | "\(.transport) \(.peer)"' | grep "nvme+rdma 10.77.0.11"
  daemon ls | grep "nvme+rdma://$PEER_A:$PORT"
  guest <<< 'disconnect'
  [ "$(peer_session_count)" = 0 ]
}
