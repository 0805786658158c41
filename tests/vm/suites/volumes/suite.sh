# Kinds of volume under Linux's NVMe/TCP host: file systems on them, and what becomes of these when a daemon ends or a volume is copied.
# Names and helpers are those of the suite nvme-tcp; each file defines its own volumes.
# shellcheck shell=bash disable=SC2034

# shellcheck source=/dev/null
. "$VM_TOP/suites/nvme-tcp/suite.sh"
SUITE_GUEST_FILES=("$VM_TOP/suites/nvme-tcp/guest.sh")
# What files of volumes lie in.
FILES_DIR=$VM_STATE/files

suite_define() {
  peer_target_create "$NQN" any
  peer_portal_add "$PEER_A" "$PORT"
  mkdir -p "$FILES_DIR"
}

# offer NSID VOLUME, as a namespace of the target.
offer() { peer_namespace_add "$NQN" "$1" "$2"; }

# The host stays connected while the daemon is away.
connect_for_long() { guest <<< 'connect "$PEER_A" --keep-alive-tmo=5 --reconnect-delay=1 --ctrl-loss-tmo=600'; }
