# What every script of a test can use inside the guest.
# shellcheck shell=bash
set -eEuo pipefail
trap 'echo "guest, line $LINENO: failed: $BASH_COMMAND" >&2' ERR

# eventually SECONDS COMMAND...: until it succeeds, or fails at the limit.
eventually() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@" 2> /dev/null; do
    [ "$SECONDS" -lt "$deadline" ] || {
      echo "not within the time: $*" >&2
      return 1
    }
    sleep 0.1
  done
}

# refused COMMAND...: it must fail; its message is shown.
refused() {
  local status=0
  "$@" || status=$?
  [ "$status" != 0 ] || {
    echo "was not refused: $*" >&2
    return 1
  }
}

# same A B [WHAT]
same() {
  [ "$1" = "$2" ] || {
    echo "${3:-value}: '$1', expected '$2'" >&2
    return 1
  }
}
