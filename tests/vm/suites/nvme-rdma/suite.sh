# NVMe/RDMA with Linux's host, nvme-rdma over rdma_rxe: what the tests of this suite share. Names, disks and helpers are those
# of the suite nvme-tcp; the daemon serves RoCEv2 in user space.
# shellcheck shell=bash disable=SC2034

# shellcheck source=/dev/null
. "$VM_TOP/suites/nvme-tcp/suite.sh"
PORTAL_SCHEME=nvme+rdma
TRANSPORT=rdma
A_V6=fd00:77::1
SUITE_NAMES+=(A_V6)
SUITE_GUEST_FILES=("$VM_TOP/guest/rdma.sh" "$VM_TOP/suites/nvme-tcp/guest.sh")

suite_start() {
  peer_can rdma || report_die "peer $PEER does not serve NVMe/RDMA"
  net_bridge br0 10.77.0.1/24
  net_bridge br1 10.77.1.1/24
  peer_start
  peer_address_add "$A_V6/64"
  guest_start host -m 1024 -n br0=10.77.0.11/24 -n br1=10.77.1.11/24
  cp "$RAMPORT" "$VM_STATE/host/share/ramport"
  peer_volume_create disk "$DISK_MIB" 512
  peer_volume_create disk-4k "$DISK_4K_MIB" 4096
  peer_target_create "$NQN" any
  peer_namespace_add "$NQN" 1 disk
  peer_namespace_add "$NQN" 2 disk-4k
  peer_portal_add "$PEER_A" "$PORT"
  peer_portal_add "$PEER_B" "$PORT"
  guest << 'E'
ip address add "${A_V6%1}11/64" dev eth0 nodad
rxe_up
modprobe -a nvme-rdma nvme-tcp ext4 xfs sch_netem
mkdir -p /etc/nvme /mnt/disk
echo "$HOST_1" > /etc/nvme/hostnqn
echo "${HOST_1##*uuid:}" > /etc/nvme/hostid
E
}
