# A cluster of three daemons on this machine, at addresses of their own, and a volume with copies on two of them, which a guest uses
# through all three: what the tests of this suite share.
# shellcheck shell=bash disable=SC2034

NQN=nqn.2026-01.test.ramport:main
IQN=iqn.2026-01.test.ramport:main
ISCSI_PORT=3260
TRANSPORT=tcp
SUITE_NAMES=(NQN IQN HOST_1 HOST_2 PORT TRANSPORT)

CLUSTER_DIR=$VM_STATE/cluster
CLUSTER_NODES=(1 2 3)
CLUSTER_DISK_MIB=64
CLUSTER_WAIT_S=60

# suite_start FILE: the host is one of NVMe or of iSCSI, with the helpers of that suite.
suite_start() {
  [ "$PEER" = ramport ] || report_die "peer $PEER is no cluster"
  case $1 in
    *alua)
      PORT=$ISCSI_PORT
      HOST_1=iqn.2026-01.test.ramport:host-1
      HOST_2=iqn.2026-01.test.ramport:host-2
      SUITE_GUEST_FILES=("$VM_TOP/suites/iscsi/guest.sh")
      suite_boot <<< 'modprobe -a iscsi_tcp sd_mod sg crc32c scsi_dh_alua; be_initiator'
      ;;
    *)
      PORT=4420
      HOST_1=nqn.2014-08.org.nvmexpress:uuid:11111111-1111-4111-8111-111111111111
      HOST_2=nqn.2014-08.org.nvmexpress:uuid:22222222-2222-4222-8222-222222222222
      SUITE_GUEST_FILES=("$VM_TOP/suites/nvme-tcp/guest.sh")
      suite_boot <<< 'modprobe -a nvme-tcp; be_host'
      ;;
  esac
}

# The peer of this suite is the nodes that run; without etcd there are none, and the tests are skipped.
peer_start() {
  local number
  rm -rf "$CLUSTER_DIR"
  mkdir -p "$CLUSTER_DIR"
  command -v etcd > /dev/null || return 0
  (umask 077; head -c 32 /dev/urandom | base64 > "$CLUSTER_DIR/token")
  for number in "${CLUSTER_NODES[@]}"; do
    [ "$number" = 1 ] || peer_address_add "$(node_address "$number")/24"
    node_start "$number"
  done
  on 1 cluster create lab --nodes "$(node_address 1),$(node_address 2),$(node_address 3)"
  on 1 volume create disk --size "${CLUSTER_DISK_MIB}MiB" --copies 2
  for number in "${CLUSTER_NODES[@]}"; do
    copies_become "$number" 2
    on "$number" portal create "iscsi://$(node_address "$number"):$ISCSI_PORT"
    on "$number" target create "$NQN" --volume disk --allow-any-host
    on "$number" target create "$IQN" --volume disk --allow-any-host
  done
}

peer_stop() {
  local number
  for number in "${CLUSTER_NODES[@]}"; do node_kill "$number"; done
}

# The nodes that were not killed.
peer_alive() {
  local pid
  for pid in "$CLUSTER_DIR"/n*/pid; do
    [ ! -e "$pid" ] || kill -0 "$(cat "$pid")" 2> /dev/null || return 1
  done
}

peer_log() { tail -n 10 "$CLUSTER_DIR"/n*/log; }

needs_etcd() { command -v etcd > /dev/null || skip "etcd is not installed here (Debian: etcd-server)"; }

node_address() { echo "10.77.0.$1"; }

# on NUMBER ARGUMENT...: the program, at that node.
on() { "$RAMPORT" --socket "$CLUSTER_DIR/n$1/socket" "${@:2}"; }

node_start() {
  local dir=$CLUSTER_DIR/n$1 address start=$SECONDS
  address=$(node_address "$1")
  mkdir -p "$dir"
  "${NET_RUN[@]}" "${RUN_FIRST[@]}" "$RAMPORT" --socket "$dir/socket" serve --state "$dir/state" --memory 512M --cores 1 \
    --nvme-tcp "$address" --cluster "$address" --cluster-token-file "$CLUSTER_DIR/token" --node-name "n$1" \
    >> "$dir/log" 2>&1 < /dev/null &
  echo $! > "$dir/pid"
  session_first $!
  disown
  until on "$1" capacity > /dev/null 2>&1; do
    [ $((SECONDS - start)) -lt "$CLUSTER_WAIT_S" ] || return 1
    sleep 0.1
  done
}

# node_kill NUMBER: the end of a machine; its etcd ends, too.
node_kill() {
  local dir=$CLUSTER_DIR/n$1 pid file
  for file in "$dir/pid" "$dir/cluster/etcd.pid"; do
    [ -s "$file" ] || continue
    pid=$(cat "$file")
    rm -f "$file"
    kill -KILL "$pid" 2> /dev/null || :
    while kill -0 "$pid" 2> /dev/null; do sleep 0.05; done
  done
}

# replication NUMBER: what that node says of the volume's copies.
replication() { on "$1" volume show disk --json | jq .replication; }

# copies_become NUMBER COUNT: that node says that so many are in sync, and which one is the primary.
copies_become() {
  local start=$SECONDS
  until replication "$1" 2> /dev/null | jq -e --argjson count "$2" '.in_sync == $count and .primary != null' > /dev/null; do
    [ $((SECONDS - start)) -lt "$CLUSTER_WAIT_S" ] || return 1
    sleep 0.1
  done
}

# Sets PRIMARY, SECONDARY and OTHER, the numbers of the nodes, from what node NUMBER says.
find_roles() {
  local copies
  PRIMARY=$(replication "$1" | jq -r '.primary | ltrimstr("n")')
  copies=$(replication "$1" | jq -r '.copies[].node | ltrimstr("n")')
  # shellcheck disable=SC2086
  SECONDARY=$(printf '%s\n' $copies | grep -vx "$PRIMARY")
  OTHER=$((6 - PRIMARY - SECONDARY))
}
