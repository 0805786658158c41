# Helpers inside the guest.
# shellcheck shell=bash disable=SC2154,SC2034

NVMET=/sys/kernel/config/nvmet

# ends_up: a veth from here, with a device of rdma_rxe on it, to the namespace "peer". rdma_rxe has UDP port 4791 of this
# namespace, and works in no other.
ends_up() {
  modprobe crc32_generic   # without it `rdma link add` fails
  modprobe -a rdma_rxe rdma_ucm veth sch_netem
  ip netns add peer
  ip link add veth0 type veth peer name veth1 netns peer
  ip address add "$HW_4/24" dev veth0
  ip address add "$HW_6/64" dev veth0 nodad
  ip -n peer address add "$SOFT_4/24" dev veth1
  ip -n peer address add "$SOFT_6/64" dev veth1 nodad
  ip -n peer link set lo up
  link_mtu 9000
  ip link set veth0 up
  ip -n peer link set veth1 up
  rxe_on veth0
}

rxe_on() {
  rdma link add rxe0 type rxe netdev "$1"
  eventually 5 rxe_is_active rxe0
}

# link_mtu MTU: of which rdma_rxe makes its own: of 1500 1024, of 9000 4096.
link_mtu() {
  ip link set veth0 mtu "$1"
  ip -n peer link set veth1 mtu "$1"
}

# suite END END [PART]...: the behavioural suite, with "peer" as the namespace of software.
suite() {
  local ends=()
  for end in "$1" "$2"; do
    case $end in
      soft:*) ends+=("$end@peer") ;;
      *) ends+=("$end") ;;
    esac
  done
  /share/fabric_suite "${ends[@]}" "${@:3}"
}

# both_ways [PART]...: between an adapter and software, each as the one that asks.
both_ways() {
  suite "hw:$HW_4" "soft:$SOFT_4" "$@"
  suite "soft:$SOFT_4" "hw:$HW_4" "$@"
}

# data_both_ways: the parts that move data; but no message of 1 MiB where rdma_rxe sends: it takes up one loss per message at
# once, and waits half a second for each other.
data_both_ways() {
  both_ways messages_arrive_in_order reads_and_writes_move_bytes keys_are_invalidated
  suite "soft:$SOFT_4" "hw:$HW_4" bulk
}

# twisted ARGUMENT...: what netem does to packets of either direction.
twisted() {
  untwisted
  tc qdisc add dev veth0 root netem "$@"
  tc -n peer qdisc add dev veth1 root netem "$@"
}

untwisted() {
  tc qdisc del dev veth0 root 2> /dev/null || :
  tc -n peer qdisc del dev veth1 root 2> /dev/null || :
}

# answered COMMAND...: a server in the background that says when it listens.
answered() {
  rm -f /tmp/server
  "$@" > /tmp/server 2>&1 &
  SERVER=$!
  eventually 20 grep -qx listening /tmp/server
}

# told LINE: the server has ended well, and has said so last.
told() {
  local status=0
  wait "$SERVER" || status=$?
  cat /tmp/server
  same "$status" 0 "the server's status"
  same "$(tail -n 1 /tmp/server)" "$1" "the server's last line"
}

# rping_asks ADDRESS COUNT: rdma-core's rping as the client. When it is done, it closes its event channel while a thread may still
# read it, which then ends the process with status 255 (rdma-core 44, librdmacm/examples/rping.c, cm_thread); `told` shows what the
# server has seen.
rping_asks() {
  local status=0
  rping -c -a "$1" -p "$PORT" -C "$2" -V > /tmp/rping 2>&1 || status=$?
  cat /tmp/rping
  [ "$status" != 255 ] || [ "$(tail -n 1 /tmp/rping)" != "rdma_get_cm_event: Bad file descriptor" ] || status=0
  same "$status" 0 "rping's status"
}

# listens PORT: somebody listens at a port of the connection manager's.
listens() { rdma resource show cm_id | grep -q "state LISTEN .*:$1\b"; }

# pingpong ADDRESS [PEER]: rdma-core's, on the adapter, by this address of it; without a peer it waits for one.
pingpong() {
  local gid
  gid=$(gid_index rxe0 "$1")
  timeout 60 ibv_rc_pingpong -d rxe0 -g "$gid" -p "$PORT" -n "$ROUNDS" "${@:2}"
}

# gid_index DEVICE ADDRESS: its place in the table of a device's port; one of IPv6 has its zeros in one run.
gid_index() {
  local gid index words
  if [[ $2 = *:* ]]; then
    IFS=: read -ra words <<< "${2/::/:}"
    gid=${2/::/:$(printf '0:%.0s' $(seq ${#words[@]} 7))}
    IFS=: read -ra words <<< "$gid"
    gid=$(printf ':%04x' "${words[@]/#/0x}")
    gid=${gid#:}
  else
    IFS=. read -ra words <<< "$2"
    gid=$(printf '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x' "${words[@]}")
  fi
  for index in /sys/class/infiniband/"$1"/ports/1/gids/*; do
    if [ "$(cat "$index")" = "$gid" ]; then
      echo "${index##*/}"
      return
    fi
  done
  return 1
}

# is_listening PORT: somebody listens at a port of TCP.
is_listening() { ss -Hltn "sport = :$1" | grep -q .; }

# peer_ramport VERB...: ours, in the namespace "peer".
peer_ramport() { ip netns exec peer /share/ramport "$@"; }

# nvmet_up, nvmet_down: Linux's own NVMe target on the adapter, at both its addresses, with a RAM disk of DISK_MIB as NQN.
nvmet_up() {
  modprobe brd rd_nr=1 rd_size=$((DISK_MIB * 1024))
  modprobe -a nvmet nvmet-rdma
  mkdir "$NVMET/subsystems/$NQN" "$NVMET/subsystems/$NQN/namespaces/1"
  echo 1 > "$NVMET/subsystems/$NQN/attr_allow_any_host"
  echo /dev/ram0 > "$NVMET/subsystems/$NQN/namespaces/1/device_path"
  echo 1 > "$NVMET/subsystems/$NQN/namespaces/1/enable"
  nvmet_port 1 ipv4 "$HW_4"
  nvmet_port 2 ipv6 "$HW_6"
}

# nvmet_port NUMBER FAMILY ADDRESS
nvmet_port() {
  local directory=$NVMET/ports/$1
  mkdir "$directory"
  echo rdma > "$directory/addr_trtype"
  echo "$2" > "$directory/addr_adrfam"
  echo "$3" > "$directory/addr_traddr"
  echo 4420 > "$directory/addr_trsvcid"
  ln -s "$NVMET/subsystems/$NQN" "$directory/subsystems/"
}

nvmet_down() {
  rm "$NVMET"/ports/*/subsystems/"$NQN"
  rmdir "$NVMET"/ports/* "$NVMET/subsystems/$NQN/namespaces/1" "$NVMET/subsystems/$NQN"
  modprobe -r nvmet-rdma nvmet brd
}

# longest_payloads COUNT COMMAND...: /tmp/longest has the longest payload among the first COUNT packets of RoCEv2's over IPv4 that have
# 1024 bytes or more, as "from ADDRESS BYTES". Headers and checksum have less than 1024, payloads of full packets are a multiple.
longest_payloads() {
  local capture count=$1
  shift
  # Runs of packets would be captured before they are cut.
  ip netns exec peer ethtool -K veth1 tx-udp-segmentation off
  timeout 100 tcpdump -i veth0 -nn -s 64 -c "$count" 'ip and udp port 4791 and greater 1060' > /tmp/packets 2> /tmp/tcpdump &
  capture=$!
  eventually 10 grep -q 'listening on' /tmp/tcpdump
  "$@"
  wait "$capture"
  ip netns exec peer ethtool -K veth1 tx-udp-segmentation on
  awk '{ sub(/[.][0-9]+$/, "", $3); bytes = $NF - $NF % 1024; if (bytes > longest[$3]) longest[$3] = bytes }
    END { for (from in longest) print "from", from, longest[from] }' /tmp/packets | sort | tee /tmp/longest
}
