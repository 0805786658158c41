# Helpers inside the guest, besides those of the suite nvme-tcp or iscsi.
# shellcheck shell=bash disable=SC2154,SC2034

# What Linux notes of the connection to a node that is lost: it is tried again every second.
FAST_LOSS="--keep-alive-tmo=5 --reconnect-delay=1 --ctrl-loss-tmo=600"

# ana_state ADDRESS: that of namespace 1 on the path to a node.
ana_state() {
  local controller
  controller=$(controllers "$NQN" "$1")
  cat "/sys/class/nvme/$controller/"nvme*c*n*/ana_state
}
is_ana_state() { [ "$(ana_state "$1")" = "$2" ]; }

# ana_becomes ADDRESS STATE SECONDS
ana_becomes() {
  eventually "$3" is_ana_state "$1" "$2" || {
    grep -H . /sys/class/nvme/nvme*/{address,state} /sys/class/nvme/nvme*/nvme*c*n*/ana_state
    return 1
  }
}

# path_writes ADDRESS: how many went by the path to a node.
path_writes() { cat "/sys/class/nvme/$(controllers "$NQN" "$1")/"nvme*c*n*/stat | awk '{ sum += $5 } END { print sum + 0 }'; }

is_live() { live "$(controllers "$NQN" "$1")"; }

# access_state ADDRESS: what Linux's handler of ALUA knows of LUN 0 on the path to a node.
access_state() {
  local path
  path=$(device "$(session "$IQN" "$1")" 0)
  cat "/sys/block/${path#/dev/}/device/access_state"
}

# is_access_state ADDRESS STATE: Linux learns of a change by a unit attention, so a block is read first.
is_access_state() {
  dd if="$(device "$(session "$IQN" "$1")" 0)" of=/dev/null bs=4k count=1 iflag=direct status=none || :
  [ "$(access_state "$1")" = "$2" ]
}

# access_becomes ADDRESS STATE SECONDS
access_becomes() {
  eventually "$3" is_access_state "$1" "$2" || {
    grep -H . /sys/class/scsi_device/*/device/{access_state,dh_state}
    return 1
  }
}
