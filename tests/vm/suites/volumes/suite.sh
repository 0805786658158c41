# Kinds of volume under Linux's NVMe/TCP host: file systems on them, and what becomes of these when a daemon ends or a volume is copied.
# Names and helpers are those of the suite nvme-tcp; each file defines its own volumes.
# shellcheck shell=bash disable=SC2034

# shellcheck source=/dev/null
. "$VM_TOP/suites/nvme-tcp/suite.sh"
SUITE_GUEST_FILES=("$VM_TOP/guest/rdma.sh" "$VM_TOP/suites/nvme-tcp/guest.sh")
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

# shown VOLUME FILTER: what jq selects of what the daemon tells of it.
shown() { daemon --json volume show "$1" | jq -r "$2"; }

# soon COMMAND...: it succeeds within SOON_LIMIT_S.
SOON_LIMIT_S=60
soon() {
  local start=$SECONDS
  until "$@"; do
    [ $((SECONDS - start)) -lt "$SOON_LIMIT_S" ] || {
      echo "not within $SOON_LIMIT_S s: $*"
      return 1
    }
    sleep 0.2
  done
}

# Other machines with disks: daemons beside the one that is tested, in the same network.

# on_far NAME COMMAND...: a function of the peer, for that machine's daemon.
on_far() {
  local DAEMON_DIR=$VM_STATE/far-$1
  "${@:2}"
}

# far_up NAME SIZE SCHEME://ADDRESS:PORT TARGET: a machine that offers a volume in a file, which outlives its daemon.
far_up() {
  local SERVE_ARGUMENTS=(--listen "$3")
  on_far "$1" peer_start
  on_far "$1" daemon volume create disk --file "$FILES_DIR/far-$1.img" --size "$2"
  on_far "$1" daemon target create "$4" --allow-any-host --volume disk
}
