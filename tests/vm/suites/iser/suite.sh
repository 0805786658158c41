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
  suite_boot << 'E'
ip address add "${A_V6%1}11/64" dev eth0 nodad
rxe_up
modprobe -a ib_iser iscsi_tcp sd_mod sg crc32c ext4 xfs sch_netem
be_initiator
E
  peer_address_add "$A_V6/64"
  suite_define
}
