# CHAP: the initiator proves itself, and the target to it. The second name needs it.
# shellcheck shell=bash

CLOSED=$IQN-closed

setup() {
  peer_volume_create closed 16 512
  peer_host_chap "$HOST_2" alice "$SECRET"
  peer_target_create "$CLOSED" "$HOST_2"
  peer_namespace_add "$CLOSED" 0 closed
}
teardown() {
  all_may_discover
  guest CLOSED="$CLOSED" <<< 'not_attached "$CLOSED" || detach "$CLOSED"'
  peer_target_remove "$CLOSED"
  peer_host_remove "$HOST_2"
}

# all_prove / all_may_discover: hosts of the first portal, at discovery too.
all_prove() { daemon portal set "iscsi://$PEER_A:$PORT,$GROUP_A" --require-auth on; }
all_may_discover() { daemon portal set "iscsi://$PEER_A:$PORT,$GROUP_A" --require-auth off; }

# Of a script: `chap_login USER SECRET [USER SECRET]`, which answers as iscsiadm does.
chap_guest() {
  {
    cat << 'E'
chap_login() {
  local settings=(node.session.auth.authmethod=CHAP "node.session.auth.username=$1" "node.session.auth.password=$2")
  [ $# -lt 4 ] || settings+=("node.session.auth.username_in=$3" "node.session.auth.password_in=$4")
  IFACE=second record "$CLOSED" "$PEER_A" "${settings[@]}"
  IFACE=second node "$CLOSED" "$PEER_A" --login
}
# 24: authorization failure, in the words of iscsiadm(8).
unauthorized() {
  local status=0
  "$@" > /tmp/out 2>&1 || status=$?
  cat /tmp/out
  same "$status" 24 "status of iscsiadm"
  not_attached "$CLOSED"
}
E
    cat
  } | guest CLOSED="$CLOSED" SECRET="$SECRET" BACK="$BACK"
}

test_another_name_is_refused() {
  chap_guest << 'E'
record "$CLOSED" "$PEER_A"
unauthorized node "$CLOSED" "$PEER_A" --login
node "$CLOSED" "$PEER_A" -o delete
E
}

test_without_a_proof_it_is_refused() {
  chap_guest << 'E'
IFACE=second record "$CLOSED" "$PEER_A"
IFACE=second unauthorized node "$CLOSED" "$PEER_A" --login
E
}

test_wrong_secret_or_user_is_refused() {
  chap_guest << 'E'
unauthorized chap_login alice not-the-secret-at-all
unauthorized chap_login bob "$SECRET"
E
}

test_right_secret_is_let_in() {
  chap_guest << 'E'
chap_login alice "$SECRET"
disk=$(eventually 15 device "$(session "$CLOSED" "$PEER_A" second)" 0)
verified chap "$disk" --rw=randwrite --bs=4k --iodepth=8 --size=1m
detach "$CLOSED"
E
}

test_discovery_needs_the_proof_too() {
  chap_guest << 'E'
iscsiadm -m discovery -t sendtargets -p "$PEER_A:$PORT" -I default > /tmp/found
not grep -F "$CLOSED" /tmp/found
iscsiadm -m node -o delete
discovery() { iscsiadm -m discoverydb -t sendtargets -p "$PEER_A:$PORT" -I second "$@"; }
discovery -o new > /dev/null
refused 'authorization failure' discovery --discover
discovery -o update -n discovery.sendtargets.auth.authmethod -v CHAP -n discovery.sendtargets.auth.username -v alice \
  -n discovery.sendtargets.auth.password -v "$SECRET"
discovery --discover > /tmp/found
grep -F "$CLOSED" /tmp/found
iscsiadm -m node -o delete
E
}

test_mutual_the_target_proves_itself() {
  peer_host_chap "$HOST_2" alice "$SECRET" ours "$BACK"
  chap_guest << 'E'
chap_login alice "$SECRET" ours "$BACK"
eventually 15 device "$(session "$CLOSED" "$PEER_A" second)" 0
detach "$CLOSED"
E
}

test_mutual_a_target_with_another_secret_is_left() {
  chap_guest << 'E'
refused 'non-retryable iscsi login failure|authorization failure' chap_login alice "$SECRET" ours not-that-of-the-target
not_attached "$CLOSED"
E
}

test_a_portal_can_require_the_proof_of_all() {
  peer_host_chap "$HOST_2" alice "$SECRET"
  all_prove
  chap_guest << 'E'
# The first name has no secret. Other portals let it use the other target.
refused 'authorization failure' iscsiadm -m discovery -t sendtargets -p "$PEER_A:$PORT" -I default
record "$IQN" "$PEER_A"
unauthorized node "$IQN" "$PEER_A" --login
not_attached "$IQN"
node "$IQN" "$PEER_A" -o delete
discovery() { iscsiadm -m discoverydb -t sendtargets -p "$PEER_A:$PORT" -I second "$@"; }
discovery -o new > /dev/null
discovery -o update -n discovery.sendtargets.auth.authmethod -v CHAP -n discovery.sendtargets.auth.username -v alice \
  -n discovery.sendtargets.auth.password -v "$SECRET"
discovery --discover > /tmp/found
grep -F "$CLOSED" /tmp/found
iscsiadm -m node -o delete
chap_login alice "$SECRET"
disk=$(eventually 15 device "$(session "$CLOSED" "$PEER_A" second)" 0)
verified required "$disk" --rw=randwrite --bs=4k --iodepth=8 --size=1m
detach "$CLOSED"
E
  all_may_discover
  guest << 'E'
iscsiadm -m discovery -t sendtargets -p "$PEER_A:$PORT" -I default > /tmp/found
grep -F "$IQN" /tmp/found
iscsiadm -m node -o delete
E
}
