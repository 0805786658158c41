# Helpers inside the guest, beside those of the suite nvme-tcp.
# shellcheck shell=bash disable=SC2154

# transport_of CONTROLLER
transport_of() { cat "/sys/class/nvme/$1/transport"; }

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

# bond_moves_to LINK: which RDMA's connection manager tells whoever uses the address.
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
