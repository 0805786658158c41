# Helpers inside the guest.
# shellcheck shell=bash disable=SC2154,SC2034

# attach [OPTION]...: executes CONNECT, the printed lines, with more options of ib_srp, and waits for both LUNs.
attach() {
  connect "$@"
  eventually 20 disk 0 > /dev/null
  eventually 20 disk 1 > /dev/null
}

# connect [OPTION]...: the same without waiting.
connect() {
  local lines=$CONNECT option
  for option; do lines=${lines/dest=/$option,dest=}; done
  bash -e <<< "$lines"
}

# hosts: the SCSI hosts of ib_srp, as host1 ...
hosts() {
  local dir
  for dir in /sys/class/scsi_host/host*; do
    [ "$(cat "$dir/proc_name" 2> /dev/null)" != ib_srp ] || echo "${dir##*/}"
  done
}

# disk LUN: the block device of the first of them; fails when there is none.
disk() {
  local host dir
  for host in $(hosts); do
    for dir in /sys/class/scsi_host/"$host"/device/target*/*:*:*:"$1"/block/sd* \
      /sys/class/scsi_host/"$host"/device/rport-*/target*/*:*:*:"$1"/block/sd*; do
      [ -b "/dev/${dir##*/}" ] || continue
      echo "/dev/${dir##*/}"
      return
    done
  done
  return 1
}

not_attached() { [ -z "$(hosts)" ]; }

# detach: ends all sessions, as the printed lines do.
detach() {
  local port
  for port in /sys/class/srp_remote_ports/port-*; do
    [ ! -e "$port" ] || echo 1 > "$port/delete"
  done
  eventually 20 not_attached
}

# patient: commands wait for a target that is away, and ib_srp reconnects each second.
patient() {
  local port
  for port in /sys/class/srp_remote_ports/port-*; do
    echo 1 > "$port/reconnect_delay"
    echo off > "$port/fast_io_fail_tmo"
  done
}

# is_running: the initiator's session is up.
is_running() { grep -qx running /sys/class/srp_remote_ports/port-*/state; }
