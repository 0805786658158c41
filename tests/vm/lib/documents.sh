# The commands of documents as printed: those of the serving side on this machine, in the run's network namespace, and those of the
# host (prompt `other#`) in the guest. tests/docs/run executes all others.
# shellcheck shell=bash

DOCUMENT_ADDRESS=192.0.2.1
DOCUMENT_GUEST=192.0.2.11
DOCUMENT_ROOT=$VM_TOP/../..
DOCUMENT_DIR=$VM_STATE/document

# document_setup: the addresses of documents on both sides.
document_setup() {
  peer_address_add "$DOCUMENT_ADDRESS/24"
  document_guest_address add
}

document_teardown() {
  document_end
  document_guest_address delete
  ip -n "$NET_NS" address delete "$DOCUMENT_ADDRESS/24" dev br0
}

document_guest_address() {
  guest VERB="$1" ADDRESS="$DOCUMENT_GUEST/24" << 'E'
interface=$(ip -o -4 address show to 10.77.0.11 | awk '{ print $2 }')
ip address "$VERB" "$ADDRESS" dev "$interface"
E
}

# document_serve DOCUMENT WORD: executes the serving side of the blocks that contain WORD; a daemon of its own keeps running.
document_serve() {
  document_end
  rm -rf "$DOCUMENT_DIR"
  mkdir -p "$DOCUMENT_DIR/bin"
  ln -s "$(realpath "$RAMPORT")" "$DOCUMENT_DIR/bin/ramport"
  "$DOCUMENT_ROOT/tests/docs/script" serving "$DOCUMENT_ROOT/$1" "$2" > "$DOCUMENT_DIR/commands"
  grep -q . "$DOCUMENT_DIR/commands"
  (
    cd "$DOCUMENT_DIR" || exit
    export HOME=$DOCUMENT_DIR PATH=$DOCUMENT_DIR/bin:$PATH RAMPORT_SOCKET=$DOCUMENT_DIR/socket RAMPORT_STATE=$DOCUMENT_DIR/state
    export NAME=$1 COMMANDS=$DOCUMENT_DIR/commands
    # shellcheck disable=SC2016  # for the shell that it starts
    "${NET_RUN[@]}" bash -eEuo pipefail -c '. "$0"; . "$COMMANDS"; echo "$daemon" > pid' \
      "$(realpath "$DOCUMENT_ROOT")/tests/docs/prelude.sh" > log 2>&1 < /dev/null || {
      cat log
      exit 1
    }
  )
}

# document_attach DOCUMENT WORD: executes the host's side of these blocks, then the script on stdin.
document_attach() {
  local commands
  commands=$("$DOCUMENT_ROOT/tests/docs/script" other "$DOCUMENT_ROOT/$1" "$2")
  [ -n "${commands//[[:space:]]/}" ]
  {
    # A reader waits for the disk before the next command.
    # shellcheck disable=SC2016  # for the guest
    echo 'mkfs.xfs() { eventually 20 test -b "$1"; command mkfs.xfs "$@"; }'
    echo "$commands"
    cat
  } | guest
}

# document_end: ends the daemon of document_serve, also one that a failed test left.
document_end() {
  local pid
  [ -s "$DOCUMENT_DIR/pid" ] || return 0
  pid=$(cat "$DOCUMENT_DIR/pid")
  kill "$pid" 2> /dev/null || :
  while kill -0 "$pid" 2> /dev/null; do sleep 0.05; done
}
