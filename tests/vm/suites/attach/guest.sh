# Helpers inside the guest.
# shellcheck shell=bash disable=SC2154,SC2034

# nvme [QUERY]: the URL of the disk, or of another namespace.
nvme() { echo "nvme+tcp://$PEER_A:$PORT/$NQN${1:-}"; }

# attached NAME URL [OPTION]...: sets DISK to its device.
attached() {
  DISK=$(/share/ramport --json attach "$2" --name "$1" "${@:3}" | jq -r .device)
  [ -b "$DISK" ]
}
detached() { /share/ramport detach "$1"; }

# queue_of DEVICE LIMIT: one of its queue's limits.
queue_of() { cat "/sys/block/${1#/dev/}/queue/$2"; }

# server_of NAME: the process that serves a disk.
server_of() { /share/ramport --json detach | jq -r --arg name "$1" '.[] | select(.name == $name).pid'; }
