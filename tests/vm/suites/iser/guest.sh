# Helpers inside the guest, beside those of the suite iscsi.
# shellcheck shell=bash disable=SC2154,SC2034

# register_not, register_memory: ib_iser registers no memory for commands whose data are in one piece; or it does, as when it is
# loaded first. rdma_rxe of Linux 6.12 cannot send packets again while it registers memory: a retry registers again what is
# registered, and its queue pair fails without a word. It does so when packets are lost, and when either end is slow.
register_not() {
  rmmod ib_iser
  modprobe ib_iser always_register=N
}
register_memory() { load_again ib_iser always_register; }

# by_iser SESSION: it runs over ib_iser.
by_iser() {
  local host
  host=$(basename "$(readlink -f "/sys/class/iscsi_session/$1/device/..")")
  same "$(cat "/sys/class/scsi_host/$host/proc_name")" iscsi_iser transport
}

# Since the kernel's log was cleared: neither a command nor a connection.
nothing_was_lost() { not grep -E 'connection[0-9:]* .*error|I/O error|iser: .*(fail|error)|abort|reset' <(dmesg); }

# record_and_login TARGET ADDRESS
record_and_login() {
  record "$1" "$2"
  node "$1" "$2" --login
}

# sessions: how many there are, of all targets. No process is started.
sessions() {
  local all=(/sys/class/iscsi_session/session*)
  [ -e "${all[0]}" ] || all=()
  echo "${#all[@]}"
}
