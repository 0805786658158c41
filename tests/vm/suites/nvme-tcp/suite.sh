# NVMe/TCP with Linux's host and nvme-cli: what the tests of this suite share.
# shellcheck shell=bash disable=SC2034

NQN=nqn.2026-01.test.ramport:main
HOST_1=nqn.2014-08.org.nvmexpress:uuid:11111111-1111-4111-8111-111111111111
HOST_2=nqn.2014-08.org.nvmexpress:uuid:22222222-2222-4222-8222-222222222222
PORT=4420
DISCOVERY=nqn.2014-08.org.nvmexpress.discovery
# Namespace 1 has 512-byte blocks, namespace 2 4096-byte blocks.
DISK_MIB=256
DISK_4K_MIB=320
PORTAL_SCHEME=nvme+tcp
TRANSPORT=tcp
SUITE_NAMES=(TRANSPORT NQN DISCOVERY HOST_1 HOST_2 PORT PEER_A PEER_B DISK_MIB DISK_4K_MIB)

suite_start() {
  net_bridge br0 10.77.0.1/24
  net_bridge br1 10.77.1.1/24
  peer_start
  guest_start host -m 1024 -n br0=10.77.0.11/24 -n br1=10.77.1.11/24
  peer_volume_create disk "$DISK_MIB" 512
  peer_volume_create disk-4k "$DISK_4K_MIB" 4096
  peer_target_create "$NQN" any
  peer_namespace_add "$NQN" 1 disk
  peer_namespace_add "$NQN" 2 disk-4k
  peer_portal_add "$PEER_A" "$PORT"
  peer_portal_add "$PEER_B" "$PORT"
  guest << 'E'
modprobe -a nvme-tcp ext4 xfs
mkdir -p /etc/nvme /mnt/disk
echo "$HOST_1" > /etc/nvme/hostnqn
echo "${HOST_1##*uuid:}" > /etc/nvme/hostid
E
}

# The plain set-up and tear-down of most files.
connect_host() { guest <<< 'connect "$PEER_A"'; }
disconnect_host() { guest <<< 'disconnect'; }

# What the allocator and the counters of a host may take that was not there before.
MEMORY_GROWTH_MAX_KIB=4096

# rounds_leave_nothing COUNT: neither descriptors nor memory nor sessions. Each round makes and ends seven connections.
rounds_leave_nothing() {
  local descriptors memory_kib
  rounds 1
  ! peer_can usage || descriptors=$(peer_descriptors) memory_kib=$(peer_memory_kib)
  rounds "$1"
  peer_can usage || return 0
  echo "descriptors: $descriptors before, $(peer_descriptors) after"
  echo "memory: $memory_kib KiB before, $(peer_memory_kib) KiB after"
  [ "$(peer_descriptors)" -le "$descriptors" ]
  [ "$(peer_memory_kib)" -le $((memory_kib + MEMORY_GROWTH_MAX_KIB)) ]
  [ "$(peer_session_count)" = 0 ]
}

rounds() {
  guest COUNT="$1" << 'E'
begun=$SECONDS
for round in $(seq "$COUNT"); do
  controller=$(connect_all_queues)
  [ $((round % 50)) != 0 ] || {
    eventually 10 device 1 > /dev/null
    dd if="$(device 1)" of=/dev/null bs=4k count=1 iflag=direct status=none
    echo "round $round, $((SECONDS - begun)) s"
  }
  echo 1 > "/sys/class/nvme/$controller/delete_controller"
done
eventually 10 not_connected
echo "$COUNT rounds in $((SECONDS - begun)) s"
E
}
