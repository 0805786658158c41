# Helpers inside the guest, beside those of the suite nvme-tcp.
# shellcheck shell=bash disable=SC2154,SC2034

# register_not, register_memory: nvme-rdma registers no memory for commands whose data are in one piece; or it does, as when it is
# loaded first. rdma_rxe of Linux 6.12 cannot send packets again while it registers memory: a retry registers again what is
# registered, and its queue pair fails without a word. It does so when packets are lost, and when either end is slow.
register_not() {
  rmmod nvme_rdma
  modprobe nvme-rdma register_always=N
}
register_memory() { load_again nvme_rdma register_always; }

# bond_up IPV4: an interface that is one of two links at a time, each with a MAC of its own, and a device of rdma_rxe on it.
bond_up() {
  local link
  modprobe bonding max_bonds=0
  ip link add bond0 type bond mode active-backup fail_over_mac active miimon 100
  for link in bond-a bond-b; do
    ip link add "$link" type veth peer name "far-$link"
    ip link set "far-$link" up
    ip link set "$link" master bond0
  done
  ip address add "$1/24" dev bond0
  ip link set bond0 up
  rdma link add rxe-bond type rxe netdev bond0
  eventually 5 rxe_is_active rxe-bond
}

# bond_moves_to LINK: which RDMA's connection manager reports to users of the address.
bond_moves_to() {
  local before
  before=$(cat /sys/class/net/bond0/address)
  dmesg --clear
  ip link set bond0 type bond active_slave "$1"
  [ "$(cat /sys/class/net/bond0/address)" != "$before" ]
  dmesg | grep "RDMA CM addr change for ndev bond0"
}

bond_down() {
  rdma link delete rxe-bond
  ip link delete bond0
  ip link delete bond-a
  ip link delete bond-b
}

# Since the kernel's log was cleared: neither a command nor a connection.
nothing_was_lost() { not grep -E 'nvme.*(error|timeout|reconnect|failed)' <(dmesg); }

# served CONTROLLER: the writes that went by it.
served() { cat "/sys/class/nvme/$1/"nvme*n*/stat | awk '{ sum += $5 } END { print sum }'; }
serves_more() { [ "$(served "$1")" -gt "$2" ]; }

# told_without_flow_control COUNT COMMAND...: meanwhile the target answers Connect for so many queues with the SQ head that says so,
# FFFFh. It is in a message of one packet that has a completion alone, 16 bytes behind the BTH, or behind the key that it invalidates.
told_without_flow_control() {
  local count=$1 capture
  shift
  timeout 60 tcpdump -i eth0 -nn -c "$count" "udp dst port 4791 and
    ((udp[4:2] = 40 and udp[8] = 0x04 and udp[28:2] = 0xffff) or (udp[4:2] = 44 and udp[8] = 0x17 and udp[32:2] = 0xffff))" \
    > /tmp/answers 2> /tmp/tcpdump &
  capture=$!
  eventually 10 grep -q 'listening on' /tmp/tcpdump
  "$@"
  wait "$capture"
  cat /tmp/answers
}
