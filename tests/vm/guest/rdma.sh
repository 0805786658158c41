# RoCEv2 in the guest, by Linux's rdma_rxe.
# shellcheck shell=bash

# rxe_up: a device of rdma_rxe on each of eth0 and eth1, as rxe0 and rxe1.
rxe_up() {
  local number
  modprobe crc32_generic   # without it `rdma link add` fails
  modprobe -a rdma_rxe rdma_ucm
  for number in 0 1; do
    rdma link add "rxe$number" type rxe netdev "eth$number"
    eventually 5 rxe_is_active "rxe$number"
  done
}

rxe_is_active() { rdma link show "$1/1" | grep -q 'state ACTIVE'; }

# path_mtu MTU: that of the devices' interfaces, from which rdma_rxe takes its own: 1500 makes 1024, 9000 makes 4096.
path_mtu() {
  local number
  for number in 0 1; do ip link set "eth$number" mtu "$1"; done
}

# has_path_mtu DEVICE MTU
has_path_mtu() { ibv_devinfo -d "$1" | grep -q "active_mtu:[[:space:]]*$2 "; }
