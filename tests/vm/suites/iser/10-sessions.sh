# Discovery, login and logout over RDMA, beside TCP at the same address.
# shellcheck shell=bash

test_sendtargets_tells_the_portals_over_rdma() {
  daemon portal create "iscsi://$PEER_B:$PORT,$GROUP_B"
  guest << 'G'
iscsiadm -m discovery -t sendtargets -p "$PEER_A:$PORT" -I iser | tee /tmp/found
same "$(wc -l < /tmp/found)" 2 "portals over RDMA"
grep -xF "$PEER_A:$PORT,$GROUP_A $IQN" /tmp/found
grep -xF "$PEER_B:$PORT,$GROUP_B $IQN" /tmp/found
iscsiadm -m node -o delete
iscsiadm -m discovery -t sendtargets -p "$PEER_B:$PORT" -I default | tee /tmp/found
same "$(wc -l < /tmp/found)" 1 "portals over TCP"
iscsiadm -m node -o delete
G
  daemon portal remove "iscsi://$PEER_B:$PORT,$GROUP_B" --force
}

test_a_session_is_told_with_its_transport_and_keys() {
  guest << 'G'
attach "$IQN" "$PEER_A"
by_iser "$(session "$IQN")"
dd if="$(disk 0)" of=/dev/null bs=64k count=4 iflag=direct status=none
iscsiadm -m session -P 1 | tee /tmp/session.txt
grep -F "Current Portal: $PEER_A:$PORT,$GROUP_A" /tmp/session.txt
G
  [ "$(daemon --json session ls | jq -r '.[].transport')" = iser ]
  peer_session_keys "$IQN" | tee "$VM_STATE/keys"
  local pair
  for pair in "RDMAExtensions Yes" "HeaderDigest None" "FirstBurstLength 8192" "ImmediateData Yes" "InitialR2T No"; do
    grep -qxF "$pair" "$VM_STATE/keys"
  done
  guest <<< 'detach "$IQN"'
  [ "$(peer_session_count)" = 0 ]
}

test_one_command_switches_a_portal_of_tcp_to_rdma_and_back() {
  local other=$PEER_A:3261
  daemon portal create "iscsi://$other"
  daemon portal set "iscsi://$other" --rdma on
  daemon portal ls
  guest PORT=3261 << 'G'
attach "$IQN" "$PEER_A"
by_iser "$(session "$IQN")"
verified over-rdma "$(disk 0)" --rw=randwrite --bs=4k --iodepth=8 --size=1m
detach "$IQN"
IFACE=default attach "$IQN" "$PEER_A"
not by_iser "$(session "$IQN")"
verified over-tcp "$(disk 0)" --rw=randwrite --bs=4k --iodepth=8 --size=1m
detach "$IQN"
G
  daemon portal set "iscsi://$other" --rdma off --force
  daemon portal remove "iscsi://$other" --force
}

test_an_unknown_target_is_refused() {
  guest << 'G'
refused 'non-retryable iscsi login failure' record_and_login "$IQN-nowhere" "$PEER_A"
node "$IQN-nowhere" "$PEER_A" -o delete
G
}

test_rounds_of_login_and_logout_leave_nothing() {
  local before after
  guest <<< 'record "$IQN" "$PEER_A"; node "$IQN" "$PEER_A" --login > /dev/null; node "$IQN" "$PEER_A" --logout > /dev/null'
  before=$(peer_descriptors)
  guest << 'G'
for round in {1..8}; do
  node "$IQN" "$PEER_A" --login > /dev/null
  node "$IQN" "$PEER_A" --logout > /dev/null
done
refused 'no active sessions' iscsiadm -m session
node "$IQN" "$PEER_A" -o delete
G
  after=$(peer_descriptors)
  echo "descriptors open: $before before, $after after"
  [ "$after" -le "$before" ]
  [ "$(peer_session_count)" = 0 ]
}
