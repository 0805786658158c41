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

# connections_per_thread COUNT: how many of this machine's are for each of COUNT threads of the peer, as THREAD CONNECTIONS. Which
# thread it is, is what the number of its queue pair leaves when divided by COUNT.
connections_per_thread() {
  rdma --json resource show qp | tee /tmp/qps.json |
    jq -r --argjson count "$1" '[.[] | select(.type == "RC" and .state == "RTS") | .rqpn % $count] | group_by(.)[] | "\(.[0]) \(length)"'
}

# ramport_up [SERVE_ARGUMENT]...: a daemon inside the guest, from /share. The guest has no machine ID, as a container has none.
ramport_up() {
  setsid /share/ramport serve --socket /run/ramport.sock --state /run/ramport.state "$@" \
    >> /run/ramport.log 2>&1 < /dev/null &
  echo $! > /run/ramport.pid
  eventually 20 ramport_here capacity > /dev/null || {
    tail -n 20 /run/ramport.log
    return 1
  }
}

# ramport_here VERB...: asks that daemon.
ramport_here() { /share/ramport --socket /run/ramport.sock "$@"; }

ramport_down() {
  kill "$(cat /run/ramport.pid)"
  rm -f /run/ramport.state
}

# portal_field URL FIELD: what that daemon tells of a portal.
portal_field() { ramport_here portal show "$1" --json | jq -r ".$2"; }

# adapter_away DEVICE PORTAL: it is taken away under that daemon, which goes on, and says why the portal is closed.
adapter_away() {
  rdma link delete "$1"
  eventually 20 portal_is "$2" closed
  portal_field "$2" reason | tee /tmp/reason
  grep "no RDMA adapter has the address" /tmp/reason
}

# adapter_back DEVICE INTERFACE PORTAL: it comes back, and the portal opens by itself.
adapter_back() {
  rdma link add "$1" type rxe netdev "$2"
  eventually 20 portal_is "$3" open
  same "$(portal_field "$3" provider)" hw provider
}

# portal_is PORTAL STATE: and it is told why.
portal_is() { [ "$(portal_field "$1" state)" = "$2" ] && [ "$(portal_field "$1" reason)" != null ]; }
