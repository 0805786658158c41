# Hosts that prove a secret by DH-HMAC-CHAP: what the files 72-dhchap of several suites, and those of nvme-tls, share.
# shellcheck shell=bash

# Only the first host may use it.
CLOSED=${CLOSED:-$NQN-secret}

closed_target() {
  peer_volume_create closed 64 4096
  peer_target_create "$CLOSED" "$HOST_1"
  peer_namespace_add "$CLOSED" 1 closed
}
closed_disconnected() { guest CLOSED="$CLOSED" <<< 'not_connected "$CLOSED" || disconnect "$CLOSED"'; }

# Kernels may be built without in-band authentication.
needs_auth() {
  needs_lines
  guest <<< 'modinfo nvme-core | grep -q nvme.auth' || skip "the guest's kernel has no in-band authentication"
}

# secret FUNCTION: as nvme-cli generates it, for the first host; 0 is a secret that is not transformed.
secret() {
  guest FUNCTION="$1" <<< 'nvme gen-dhchap-key --hmac="$FUNCTION" --nqn="$HOST_1"' | grep -o 'DHHC-1:[0-9]*:[A-Za-z0-9+/=]*:'
}
secrets() { SECRET=$(secret "$1") CTRL=$(secret "$1") WRONG=$(secret "$1"); }

# require HASH GROUP: of the first host, with SECRET and CTRL.
require() { peer_host_dhchap "$HOST_1" "$SECRET" "$CTRL" --dhchap-hash "$1" --dhchap-dhgroup "$2"; }

# auth_guest [NAME=VALUE]...: the script on stdin, in which `proven ARGUMENT...` connects at AT with secrets.
auth_guest() {
  {
    cat << 'E'
proven() { nvme connect -t "$TRANSPORT" -a "$PEER_A" -s "$AT" -n "$CLOSED" --nr-io-queues=2 "$@"; }
told() { dmesg | tail -n 40 | grep -i auth; }
# How often this host has proven its secret, for all controllers.
proofs() { dmesg | grep -c 'qid 0: authenticated' || :; }
proofs_above() { [ "$(proofs)" -gt "$1" ]; }
E
    cat
  } | guest CLOSED="$CLOSED" AT="${AT:-$PORT}" SECRET="$SECRET" CTRL="$CTRL" WRONG="$WRONG" "$@"
}

# both_ways HASH GROUP
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

without_a_secret_or_with_another_one_it_is_refused() {
  secrets 1
  require sha256 none
  auth_guest << 'E'
refused 'could not add new controller' proven
dmesg | grep 'qid 0: authentication setup failed'
refused 'could not add new controller' proven --dhchap-secret="$WRONG"
told
dmesg | grep 'qid 0: authentication failed'
not_connected "$CLOSED"
E
}

a_host_authenticates_again_with_a_new_secret() {
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
before=$(proofs)
echo "$SECRET" > "/sys/class/nvme/$controller/dhchap_secret"
eventually 30 proofs_above "$before"
verified dhchap "$(device 1 "$CLOSED")" --rw=randwrite --bs=4k --iodepth=8 --size=1m
live "$controller"
told
disconnect "$CLOSED"
E
}

# proven_io_goes_on_after_a_crash NVME_ARGUMENT...: hosts prove their secrets again when they reconnect.
proven_io_goes_on_after_a_crash() {
  auth_guest ARGUMENTS="$*" << 'E'
# shellcheck disable=SC2086
proven --dhchap-secret="$SECRET" --dhchap-ctrl-secret="$CTRL" --keep-alive-tmo=5 --reconnect-delay=1 --ctrl-loss-tmo=600 $ARGUMENTS
disk=$(eventually 30 device 1 "$CLOSED")
proofs > /tmp/proofs
io_started proven "$disk" written_for_a_while proven "$disk"
E
  peer_crash
  auth_guest << 'E'
# shellcheck disable=SC2046
back() { live $(controllers "$CLOSED") && device 1 "$CLOSED"; }
eventually 60 proofs_above "$(cat /tmp/proofs)"
eventually 60 back
io_ended proven 60
verified after "$(device 1 "$CLOSED")" --rw=randwrite --bs=4k --iodepth=16 --size=4m
told
E
}
