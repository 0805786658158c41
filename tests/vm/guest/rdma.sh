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

# load_again MODULE PARAMETER: without what a test has set.
load_again() {
  [ "$(< "/sys/module/$1/parameters/$2")" != N ] || {
    rmmod "$1"
    modprobe "$1"
  }
}

rxe_is_active() { [ "$(< "/sys/class/infiniband/$1/ports/1/state")" = "4: ACTIVE" ]; }

# path_mtu MTU: that of the devices' interfaces, from which rdma_rxe takes its own: 1500 makes 1024, 9000 makes 4096.
path_mtu() {
  local number
  for number in 0 1; do ip link set "eth$number" mtu "$1"; done
}

# has_path_mtu DEVICE MTU
has_path_mtu() { ibv_devinfo -d "$1" | grep -q "active_mtu:[[:space:]]*$2 "; }

# disturbed ARGUMENT...: what netem does to packets on eth0, to those that leave and to those that arrive. These are led through a
# device of their own, "arriving": netem is in what leaves alone, and the machine at the other end of the wire may have none.
disturbed() {
  undisturbed
  ip link add arriving type ifb
  tc qdisc add dev eth0 root netem "$@"
  ip link set arriving mtu 9000 up
  tc qdisc add dev arriving root netem "$@"
  tc qdisc add dev eth0 ingress
  tc filter add dev eth0 ingress matchall action mirred egress redirect dev arriving
}

undisturbed() {
  tc qdisc del dev eth0 root 2> /dev/null || :
  tc qdisc del dev eth0 ingress 2> /dev/null || :
  ip link delete arriving 2> /dev/null || :
}

# lost_both_ways, reordered_both_ways: packets were, since `disturbed`, on their way out and on their way in.
lost_both_ways() { netem_counts drops eth0 && netem_counts drops arriving; }
reordered_both_ways() { netem_counts requeues eth0 && netem_counts requeues arriving; }

# netem_counts COUNTER DEVICE: some, on that device.
netem_counts() {
  local count
  count=$(tc -s -json qdisc show dev "$2" root | jq -r --arg counter "$1" '.[] | select(.kind == "netem") | .[$counter]')
  echo "$2: $1 $count"
  [ "$count" -gt 0 ]
}

rxe_count() { cat "/sys/class/infiniband/rxe0/ports/1/hw_counters/$1"; }

# rxe_counts COUNTER COMMAND...: meanwhile rxe0 counts some.
rxe_counts() {
  local counter=$1 before count
  shift
  before=$(rxe_count "$counter")
  "$@"
  count=$(($(rxe_count "$counter") - before))
  echo "rxe0: $counter $count"
  [ "$count" -gt 0 ]
}

# asked_again_both_ways COMMAND...: meanwhile each end finds that packets of the other's are missing. No count is kept of damaged
# packets, so this shows that they are thrown away.
asked_again_both_ways() { rxe_counts rcvd_seq_err rxe_counts out_of_seq_request "$@"; }

# verified_in_one_piece NAME DEVICE_4K DEVICE: each command's data are one piece of memory, and messages few.
verified_in_one_piece() {
  verified "$1-4k" "$2" --rw=randwrite --bs=4k --iodepth=16 --size=2m
  verified "$1-256k" "$3" --rw=randwrite --bs=256k --iodepth=4 --size=8m --mem=shmhuge
}

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

# ramport_kill: it ends without warning, if it has not ended by itself.
ramport_kill() {
  kill -KILL "$(cat /run/ramport.pid)" || :
  eventually 10 ramport_is_gone
}

# Nobody may have waited for it yet.
ramport_is_gone() { [ ! -e "/proc/$(cat /run/ramport.pid)/exe" ]; }

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
