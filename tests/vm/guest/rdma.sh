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

# ramport_up [SERVE_ARGUMENT]...: a daemon inside the guest, from /share.
ramport_up() {
  setsid /share/ramport serve --socket /run/ramport.sock --state /run/ramport.state "$@" \
    >> /run/ramport.log 2>&1 < /dev/null &
  echo $! > /run/ramport.pid
  eventually 20 ramport_here capacity > /dev/null
}

# ramport_here VERB...: asks that daemon.
ramport_here() { /share/ramport --socket /run/ramport.sock "$@"; }

ramport_down() {
  kill "$(cat /run/ramport.pid)"
  rm -f /run/ramport.state
}

# portal_field URL FIELD: what that daemon tells of a portal.
portal_field() { ramport_here portal show "$1" --json | jq -r ".$2"; }
