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
  suite_boot << 'E'
ip address add "${A_V6%1}11/64" dev eth0 nodad
rxe_up
modprobe -a nvme-rdma nvme-tcp ext4 xfs sch_netem
be_host
E
  peer_address_add "$A_V6/64"
  suite_define
}
