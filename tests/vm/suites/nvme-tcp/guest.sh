# Helpers inside the guest.
# shellcheck shell=bash disable=SC2154

# connect ADDRESS [NVME_CONNECT_ARGUMENT]...: and wait until namespace 1 is there.
connect() {
  local address=$1
  shift
  nvme connect -t "$TRANSPORT" -a "$address" -s "$PORT" -n "$NQN" "$@"
  eventually 10 device 1 > /dev/null
}

disconnect() {
  nvme disconnect -n "${1:-$NQN}"
  eventually 10 not_connected "${1:-$NQN}"
}

not_connected() { ! controllers "${1:-$NQN}" | grep -q .; }

# The controllers of a subsystem, as nvme0 …, one a line; only those at an address when it is given.
controllers() {
  local nqn=${1:-$NQN} address=${2:-} dir
  for dir in /sys/class/nvme/nvme*; do
    [ "$(cat "$dir/subsysnqn" 2> /dev/null)" = "$nqn" ] || continue
    [ -z "$address" ] || grep -q "traddr=$address," "$dir/address" || continue
    echo "${dir##*/}"
  done
}

# device NSID [NQN]: the block device of a namespace; fails when there is none.
device() {
  local dir namespace
  for dir in /sys/class/nvme-subsystem/nvme-subsys*; do
    [ "$(cat "$dir/subsysnqn" 2> /dev/null)" = "${2:-$NQN}" ] || continue
    for namespace in "$dir"/nvme*n*; do
      [ "$(cat "$namespace/nsid" 2> /dev/null)" = "$1" ] || continue
      [ -b "/dev/${namespace##*/}" ] || continue
      echo "/dev/${namespace##*/}"
      return
    done
  done
  return 1
}

no_device() { ! device "$@"; }

# live CONTROLLER...: all of them are.
live() {
  local controller
  for controller; do [ "$(cat "/sys/class/nvme/$controller/state")" = live ] || return 1; done
}
