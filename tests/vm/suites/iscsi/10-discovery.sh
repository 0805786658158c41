# Discovery, login and logout.
# shellcheck shell=bash

OTHER=$IQN-other

setup() {
  peer_volume_create other 16 512
  peer_target_create "$OTHER" any
  peer_namespace_add "$OTHER" 0 other
}
teardown() {
  peer_target_remove "$OTHER"
  guest <<< 'iscsiadm -m node --logout || :; iscsiadm -m node -o delete || :'
}

test_sendtargets_tells_every_target_at_every_portal() {
  guest OTHER="$OTHER" << 'E'
iscsiadm -m discovery -t sendtargets -p "$PEER_B:$PORT" -I default | tee /tmp/found
same "$(wc -l < /tmp/found)" 4 "targets at portals"
for target in "$IQN" "$OTHER"; do
  grep -xF "$PEER_A:$PORT,$GROUP_A $target" /tmp/found
  grep -xF "$PEER_B:$PORT,$GROUP_B $target" /tmp/found
done
iscsiadm -m node -o delete
E
}

test_login_to_all_and_logout_of_all() {
  guest OTHER="$OTHER" << 'E'
iscsiadm -m discovery -t sendtargets -p "$PEER_A:$PORT" -I default --login
iscsiadm -m session
same "$(iscsiadm -m session | wc -l)" 4 sessions
for target in "$IQN" "$OTHER"; do
  for address in "$PEER_A" "$PEER_B"; do
    disk=$(eventually 15 device "$(session "$target" "$address")" 0)
    dd if="$disk" of=/dev/null bs=64k count=4 iflag=direct status=none
  done
done
lsscsi -t
E
  [ "$(peer_session_count)" = 4 ]
  guest << 'E'
iscsiadm -m node --logout
iscsiadm -m node -o delete
refused 'no active sessions' iscsiadm -m session
same "$(lsscsi -t)" "" "disks left"
E
  [ "$(peer_session_count)" = 0 ]
}

test_both_ends_tell_the_same_negotiated_values() {
  guest << 'E'
attach "$IQN" "$PEER_A"
negotiated "$(session "$IQN")" HeaderDigest None DataDigest None MaxRecvDataSegmentLength 262144 \
  MaxXmitDataSegmentLength 262144 FirstBurstLength 262144 MaxBurstLength 1048576 ImmediateData Yes InitialR2T No \
  MaxOutstandingR2T 1
cat /tmp/session.txt
for words in "Target: $IQN" "Current Portal: $PEER_A:$PORT,$GROUP_A" "Iface Initiatorname: $HOST_1" \
  "iSCSI Connection State: LOGGED IN" "iSCSI Session State: LOGGED_IN" "Lun: 0" "Lun: 1"; do
  grep -F "$words" /tmp/session.txt
done
E
  peer_session_keys "$IQN" > "$VM_STATE/keys"
  cat "$VM_STATE/keys"
  local pair
  for pair in "HeaderDigest None" "DataDigest None" "MaxRecvDataSegmentLength 262144" "FirstBurstLength 262144" \
    "MaxBurstLength 1048576" "ImmediateData Yes" "InitialR2T No" "MaxOutstandingR2T 1"; do
    grep -qxF "$pair" "$VM_STATE/keys"
  done
  guest <<< 'detach "$IQN"'
}

test_an_unknown_target_is_refused() {
  guest << 'E'
record "$IQN-nowhere" "$PEER_A"
refused 'non-retryable iscsi login failure' node "$IQN-nowhere" "$PEER_A" --login
node "$IQN-nowhere" "$PEER_A" -o delete
E
}

test_rounds_of_login_and_logout_leave_nothing() {
  local before after
  guest <<< 'record "$IQN" "$PEER_A"'
  before=$(peer_descriptors)
  guest << 'E'
for round in 1 2 3 4 5 6 7 8 9 10; do
  node "$IQN" "$PEER_A" --login > /dev/null
  node "$IQN" "$PEER_A" --logout > /dev/null
done
refused 'no active sessions' iscsiadm -m session
node "$IQN" "$PEER_A" -o delete
E
  after=$(peer_descriptors)
  echo "descriptors open: $before before, $after after"
  [ "$after" -le "$before" ]
}
