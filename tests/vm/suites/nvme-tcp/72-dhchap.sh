# DH-HMAC-CHAP: Linux's host proves its secret, and the target proves its own to it.
# shellcheck shell=bash

CLOSED=$NQN-secret

# Kernels may be built without in-band authentication.
needs_auth() {
  needs_lines
  guest <<< 'modinfo nvme-core | grep -q nvme.auth' || skip "the guest's kernel has no in-band authentication"
}

setup() {
  peer_volume_create closed 64 4096
  peer_target_create "$CLOSED" "$HOST_1"
  peer_namespace_add "$CLOSED" 1 closed
}
teardown() { guest CLOSED="$CLOSED" <<< 'not_connected "$CLOSED" || disconnect "$CLOSED"'; }

# secret FUNCTION: as nvme-cli generates it, for the first host; 0 is a secret that is not transformed.
secret() {
  guest FUNCTION="$1" <<< 'nvme gen-dhchap-key --hmac="$FUNCTION" --nqn="$HOST_1"' | grep -o 'DHHC-1:[0-9]*:[A-Za-z0-9+/=]*:'
}
secrets() { SECRET=$(secret "$1") CTRL=$(secret "$1") WRONG=$(secret "$1"); }

# require HASH GROUP: of the first host, with SECRET and CTRL.
require() {
  daemon host set "$HOST_1" --dhchap-secret-file <(echo "$SECRET") --dhchap-ctrl-secret-file <(echo "$CTRL") \
    --dhchap-hash "$1" --dhchap-dhgroup "$2"
}

# Of a script: `proven ARGUMENT...` connects with secrets.
auth_guest() {
  {
    cat << 'E'
proven() { nvme connect -t "$TRANSPORT" -a "$PEER_A" -s "$PORT" -n "$CLOSED" --nr-io-queues=2 "$@"; }
told() { dmesg | tail -n 40 | grep -i auth; }
E
    cat
  } | guest CLOSED="$CLOSED" SECRET="$SECRET" CTRL="$CTRL" WRONG="$WRONG"
}

both_ways() {
  require "$1" "$2"
  auth_guest << 'E'
proven --dhchap-secret="$SECRET" --dhchap-ctrl-secret="$CTRL"
disk=$(eventually 30 device 1 "$CLOSED")
verified dhchap "$disk" --rw=randwrite --bs=4k --iodepth=8 --size=1m
told
disconnect "$CLOSED"
E
}

test_every_hash_function_both_ways() {
  needs_auth
  local hash number=0
  for hash in sha256 sha384 sha512; do
    number=$((number + 1))
    secrets "$number"
    both_ways "$hash" none
  done
}

test_with_a_group_both_ways() {
  needs_auth
  secrets 1
  both_ways sha256 ffdhe2048
  both_ways sha512 ffdhe3072
}

test_a_secret_without_transformation() {
  needs_auth
  secrets 0
  both_ways sha256 ffdhe2048
}

test_one_way() {
  needs_auth
  secrets 1
  require sha256 none
  auth_guest << 'E'
proven --dhchap-secret="$SECRET"
eventually 30 device 1 "$CLOSED"
disconnect "$CLOSED"
E
}

test_without_a_secret_or_with_another_one_it_is_refused() {
  needs_auth
  secrets 1
  require sha256 none
  auth_guest << 'E'
refused proven > /tmp/out 2>&1
cat /tmp/out
refused proven --dhchap-secret="$WRONG" > /tmp/out 2>&1
cat /tmp/out
told
dmesg | grep 'qid 0: authentication failed'
not_connected "$CLOSED"
E
}

test_a_target_with_another_secret_is_left() {
  needs_auth
  secrets 1
  require sha256 none
  auth_guest << 'E'
refused proven --dhchap-secret="$SECRET" --dhchap-ctrl-secret="$WRONG" > /tmp/out 2>&1
cat /tmp/out
told
dmesg | grep 'controller authentication failed'
not_connected "$CLOSED"
E
}

test_a_host_authenticates_again_with_a_new_secret() {
  needs_auth
  secrets 1
  require sha256 none
  auth_guest << 'E'
proven --dhchap-secret="$SECRET" --dhchap-ctrl-secret="$CTRL"
eventually 30 device 1 "$CLOSED"
E
  SECRET=$WRONG
  require sha256 none
  auth_guest << 'E'
controller=$(controllers "$CLOSED")
before=$(dmesg | grep -c 'qid 0: authenticated')
echo "$SECRET" > "/sys/class/nvme/$controller/dhchap_secret"
again() { [ "$(dmesg | grep -c 'qid 0: authenticated')" -gt "$before" ]; }
eventually 30 again
verified dhchap "$(device 1 "$CLOSED")" --rw=randwrite --bs=4k --iodepth=8 --size=1m
live "$controller"
told
disconnect "$CLOSED"
E
}

test_generated_secrets_are_those_of_the_host() {
  needs_auth
  SECRET=$(daemon --json host keygen "$HOST_1" | jq -r .secret)
  CTRL=$(daemon --json host keygen --hash sha384 | jq -r .secret) WRONG=
  guest SECRET="$SECRET" CTRL="$CTRL" << 'E'
nvme check-dhchap-key --key="$SECRET"
nvme check-dhchap-key --key="$CTRL"
E
  both_ways sha384 ffdhe2048
}
