# CHAP over RDMA: the initiator proves itself, and the target to it. The second name needs it.
# shellcheck shell=bash

CLOSED=$IQN-closed

setup() {
  peer_volume_create closed 16 512
  peer_host_chap "$HOST_2" alice "$SECRET" ours "$BACK"
  peer_target_create "$CLOSED" "$HOST_2"
  peer_namespace_add "$CLOSED" 0 closed
}
teardown() {
  guest CLOSED="$CLOSED" <<< 'not_attached "$CLOSED" || detach "$CLOSED"'
  peer_target_remove "$CLOSED"
  peer_host_remove "$HOST_2"
}

test_proofs_of_both_sides_are_needed() {
  guest CLOSED="$CLOSED" SECRET="$SECRET" BACK="$BACK" << 'G'
chap_login() {
  record "$CLOSED" "$PEER_A" node.session.auth.authmethod=CHAP "node.session.auth.username=$1" \
    "node.session.auth.password=$2" node.session.auth.username_in=ours "node.session.auth.password_in=$3"
  node "$CLOSED" "$PEER_A" --login
}
refused 'authorization failure' record_and_login "$CLOSED" "$PEER_A"
node "$CLOSED" "$PEER_A" -o delete
IFACE=second
refused 'authorization failure' record_and_login "$CLOSED" "$PEER_A"
refused 'authorization failure' chap_login alice not-the-secret-at-all "$BACK"
refused 'non-retryable iscsi login failure|authorization failure' chap_login alice "$SECRET" not-that-of-the-target
not_attached "$CLOSED"
chap_login alice "$SECRET" "$BACK"
disk=$(eventually 15 device "$(session "$CLOSED" "$PEER_A" second)" 0)
verified chap "$disk" --rw=randwrite --bs=4k --iodepth=8 --size=1m
detach "$CLOSED"
G
}
