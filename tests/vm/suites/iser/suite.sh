# iSER with Linux's initiator, ib_iser over rdma_rxe: what the tests of this suite share. Names, disks and helpers are those of
# the suite iscsi; the daemon serves RoCEv2 in user space.
# shellcheck shell=bash disable=SC2034

# shellcheck source=/dev/null
. "$VM_TOP/suites/iscsi/suite.sh"
PORTAL_SCHEME=iser
IFACE=iser
A_V6=fd00:77::1
SUITE_NAMES+=(IFACE A_V6)
SUITE_GUEST_FILES=("$VM_TOP/guest/rdma.sh" "$VM_TOP/suites/iscsi/guest.sh")

suite_start() {
  peer_can iser || report_die "peer $PEER does not serve iSER"
  net_bridge br0 10.77.0.1/24
  net_bridge br1 10.77.1.1/24
  peer_start
  peer_address_add "$A_V6/64"
  guest_start host -m 1024 -n br0=10.77.0.11/24 -n br1=10.77.1.11/24
  cp "$RAMPORT" "$VM_STATE/host/share/ramport"
  peer_volume_create disk "$DISK_MIB" 512
  peer_volume_create disk-4k "$DISK_4K_MIB" 4096
  peer_target_create "$IQN" any
  peer_namespace_add "$IQN" 0 disk
  peer_namespace_add "$IQN" 1 disk-4k
  peer_portal_add "$PEER_A" "$PORT,$GROUP_A"
  peer_portal_add "$PEER_B" "$PORT,$GROUP_B"
  guest << 'E'
ip address add "${A_V6%1}11/64" dev eth0 nodad
rxe_up
modprobe -a ib_iser iscsi_tcp sd_mod sg crc32c ext4 xfs sch_netem
mkdir -p /mnt/disk
echo "InitiatorName=$HOST_1" > /etc/iscsi/initiatorname.iscsi
iscsid
# Under a second name, as another machine would.
iscsiadm -m iface -I second -o new
iscsiadm -m iface -I second -o update -n iface.transport_name -v iser
iscsiadm -m iface -I second -o update -n iface.initiatorname -v "$HOST_2"
E
}
