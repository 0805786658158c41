# NFS with Linux's client: what the tests of this suite share.
# shellcheck shell=bash disable=SC2034

PORT=2049
RDMA_PORT=20049
PORTAL_SCHEME=nfs
SUITE_NAMES=(PORT RDMA_PORT PEER_A PEER_B)
SUITE_GUEST_FILES=("$VM_TOP/guest/rdma.sh")

suite_start() {
  [ "$PEER" = ramport ] || report_die "the suite nfs needs --peer ramport"
  suite_boot <<< 'modprobe -a nfsv3 nfsv4'
  suite_define
}

# A share where root is root, one with the default options, and one for other machines.
suite_define() {
  local clients=(--client 10.77.0.0/24 --client 10.77.1.0/24)
  daemon share create db "${clients[@]}" --options no_root_squash
  daemon share create squashed "${clients[@]}"
  daemon share create others --client 192.0.2.0/24
  peer_portal_add "$PEER_A" "$PORT"
}

# shown SHARE FILTER: what jq selects of what the daemon tells of it.
shown() { daemon --json share show "$1" | jq -r "$2"; }

# The sessions that have used a share.
sessions_of() { daemon --json session ls | jq -r --arg share "$1" '.[] | select(.nfs.shares // [] | index($share)) | .id'; }

mount_share() { guest <<< 'mounted db'; }
unmount_share() { guest <<< 'umount /mnt/db'; }
