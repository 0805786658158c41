# Helpers inside the guest.
# shellcheck shell=bash disable=SC2154,SC2034

# be_host: under its first name.
be_host() {
  mkdir -p /etc/nvme /mnt/disk
  echo "$HOST_1" > /etc/nvme/hostnqn
  echo "${HOST_1##*uuid:}" > /etc/nvme/hostid
}

# connect ADDRESS [NVME_CONNECT_ARGUMENT]...: and wait until namespace 1 is there.
connect() {
  local address=$1
  shift
  nvme connect -t "$TRANSPORT" -a "$address" -s "$PORT" -n "$NQN" "$@"
  eventually 10 device 1 > /dev/null
}

# rounds_of HOSTNQN COUNT: connects and disconnects so often, with a queue for administration, two for writing and two for reading,
# on a connection each. No process is started meanwhile, not even nvme-cli: starts are slow under emulation.
rounds_of() {
  local round
  for ((round = 0; round < $2; round++)); do
    connect_queues "$1" nr_io_queues=2,nr_write_queues=2 5
    delete_controller
  done
}

# connect_queues HOSTNQN QUEUES COUNT: as nvme-cli would; that many queues come of it. Sets CONTROLLER.
connect_queues() {
  local told count
  exec 5<> /dev/nvme-fabrics
  echo "transport=$TRANSPORT,traddr=$PEER_A,trsvcid=$PORT,nqn=$NQN,hostnqn=$1,hostid=${1##*uuid:},queue_size=16,$2" >&5
  read -r told <&5
  exec 5>&-
  [[ $told =~ ^instance=([0-9]+), ]]
  CONTROLLER=nvme${BASH_REMATCH[1]}
  read -r count < "/sys/class/nvme/$CONTROLLER/queue_count"
  same "$count" "$3" "queues of $CONTROLLER"
}

delete_controller() { echo 1 > "/sys/class/nvme/$CONTROLLER/delete_controller"; }

disconnect() {
  nvme disconnect -n "${1:-$NQN}"
  eventually 10 not_connected "${1:-$NQN}"
}

not_connected() { [ -z "$(controllers "${1:-$NQN}")" ]; }

# The controllers of a subsystem, as nvme0 …, one a line; only those at an address when it is given.
controllers() {
  local nqn=${1:-$NQN} address=${2:-} dir
  for dir in /sys/class/nvme/nvme*; do
    [ "$(cat "$dir/subsysnqn" 2> /dev/null)" = "$nqn" ] || continue
    [ -z "$address" ] || grep -q "traddr=$address," "$dir/address" || continue
    echo "${dir##*/}"
  done
}

# device NSID [NQN]: the block device of a namespace; fails when there is none.
device() {
  local dir namespace
  for dir in /sys/class/nvme-subsystem/nvme-subsys*; do
    [ "$(cat "$dir/subsysnqn" 2> /dev/null)" = "${2:-$NQN}" ] || continue
    for namespace in "$dir"/nvme*n*; do
      [ "$(cat "$namespace/nsid" 2> /dev/null)" = "$1" ] || continue
      [ -b "/dev/${namespace##*/}" ] || continue
      echo "/dev/${namespace##*/}"
      return
    done
  done
  return 1
}

no_device() { ! device "$@"; }

# transport_of CONTROLLER
transport_of() { cat "/sys/class/nvme/$1/transport"; }
# by_transport: all of the main target's controllers are connected by the suite's transport.
by_transport() {
  local controller
  for controller in $(controllers); do same "$(transport_of "$controller")" "$TRANSPORT" "transport of $controller" || return; done
}

# live CONTROLLER...: all of them are.
live() {
  local controller
  for controller; do [ "$(cat "/sys/class/nvme/$controller/state")" = live ] || return 1; done
}
