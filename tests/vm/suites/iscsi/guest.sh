# Helpers inside the guest.
# shellcheck shell=bash disable=SC2154,SC2034

# be_initiator: under its first name; and, by the interface "second" of open-iscsi, under a second one, as another machine would be.
be_initiator() {
  mkdir -p /mnt/disk
  echo "InitiatorName=$HOST_1" > /etc/iscsi/initiatorname.iscsi
  iscsid
  iscsiadm -m iface -I second -o new
  [ -z "${IFACE:-}" ] || iscsiadm -m iface -I second -o update -n iface.transport_name -v "$IFACE"
  iscsiadm -m iface -I second -o update -n iface.initiatorname -v "$HOST_2"
}

# attach TARGET ADDRESS [NAME=VALUE]...: logs in, with these settings of open-iscsi, and
# waits for LUN 0. IFACE names another interface than the default one.
attach() {
  local target=$1 address=$2
  record "$@"
  node "$target" "$address" --login
  eventually 15 device "$(session "$target" "$address")" 0 > /dev/null
}

# record TARGET ADDRESS [NAME=VALUE]...: what open-iscsi knows of a target at a portal.
record() {
  local target=$1 address=$2 setting changes=()
  shift 2
  node "$target" "$address" -o new > /dev/null
  for setting; do changes+=(-n "${setting%%=*}" -v "${setting#*=}"); done
  [ $# = 0 ] || node "$target" "$address" -o update "${changes[@]}"
}

node() { iscsiadm -m node -T "$1" -p "$2:$PORT" ${IFACE:+-I "$IFACE"} "${@:3}"; }

# detach TARGET: logs out of all its sessions and forgets it.
detach() {
  iscsiadm -m node -T "$1" --logout
  iscsiadm -m node -T "$1" -o delete
  eventually 10 not_attached "$1"
}

not_attached() { ! session "$1"; }

# session TARGET [ADDRESS [IFACE]]: the first of its sessions, as session1 …; fails when there is none.
session() {
  local dir connection
  for dir in /sys/class/iscsi_session/session*; do
    [ "$(cat "$dir/targetname" 2> /dev/null)" = "$1" ] || continue
    connection=/sys/class/iscsi_connection/connection${dir##*/session}:0
    [ -z "${2:-}" ] || [ "$(cat "$connection/persistent_address")" = "$2" ] || continue
    [ -z "${3:-}" ] || [ "$(cat "$dir/ifacename")" = "$3" ] || continue
    echo "${dir##*/}"
    return
  done
  return 1
}

# device SESSION LUN: its block device; fails when there is none.
device() {
  local dir
  for dir in /sys/class/iscsi_session/"$1"/device/target*/*:*:*:"$2"/block/sd*; do
    [ -b "/dev/${dir##*/}" ] || continue
    echo "/dev/${dir##*/}"
    return
  done
  return 1
}

no_device() { ! device "$@"; }

# disk LUN: the device of the main target's first session.
disk() { device "$(session "$IQN")" "$1"; }

# served DEVICE: the writes that went by it.
served() { awk '{ print $5 }' "/sys/block/${1#/dev/}/stat"; }
serves_more() { [ "$(served "$1")" -gt "$2" ]; }

# logged_in SESSION: it is neither lost nor being recovered.
logged_in() { [ "$(cat "/sys/class/iscsi_session/$1/state")" = LOGGED_IN ]; }

# negotiated SESSION KEY VALUE...: iscsiadm tells each of these keys so.
negotiated() {
  iscsiadm -m session -r "${1#session}" -P 3 > /tmp/session.txt
  shift
  while [ $# -gt 0 ]; do
    same "$(sed -n "s/^[[:space:]]*$1: //p" /tmp/session.txt)" "$2" "$1"
    shift 2
  done
}

# multipathd's lines about the paths to LUN 0: DEVICE WWID STATE.
path_lines() {
  local wwid
  wwid=$(multipathd show paths raw format '%d %w' | awk -v disk="$(basename "$(disk 0)")" '$1 == disk { print $2 }')
  multipathd show paths raw format '%d %w %t' | awk -v wwid="$wwid" 'wwid != "" && $2 == wwid'
}

# The device of device-mapper over these paths.
map() { echo "/dev/mapper/$(path_lines | awk 'NR == 1 { print $2 }')"; }

paths_are() { [ "$(path_lines | awk -v state="$1" '$3 == state' | wc -l)" = "$2" ]; }

# paths_become STATE COUNT SECONDS: so many are, within that time.
paths_become() {
  eventually "$3" paths_are "$1" "$2" || {
    multipathd show paths
    multipath -ll
    return 1
  }
}
