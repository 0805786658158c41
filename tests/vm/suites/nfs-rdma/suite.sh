# NFS version 3 over RDMA with Linux's client, rpcrdma over rdma_rxe: what the tests of this suite share. Shares and helpers are
# those of the suite nfs; the daemon serves RoCEv2 in user space.
# shellcheck shell=bash disable=SC2034

# shellcheck source=/dev/null
. "$VM_TOP/suites/nfs/suite.sh"
PORT_RDMA=20049
SUITE_NAMES+=(PORT_RDMA)
SUITE_GUEST_FILES=("$VM_TOP/guest/rdma.sh" "$VM_TOP/suites/nfs/guest.sh")

suite_start() {
  [ "$PEER" = ramport ] || report_die "the suite nfs-rdma needs --peer ramport"
  suite_boot << 'E'
rxe_up
modprobe -a nfsv3 rpcrdma
E
  suite_define
  daemon portal create "nfs+rdma://$PEER_A:$PORT_RDMA"
}

mount_share() { guest <<< 'mounted_by_rdma db'; }
