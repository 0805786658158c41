# SRP with Linux's initiator, ib_srp over rdma_rxe and the RDMA connection manager: what the tests of this suite share. The daemon
# serves RoCEv2 in user space.
# shellcheck shell=bash disable=SC2034

IQN=iqn.2026-01.test.ramport:main
PORT=5555
# LUN 0 has 512-byte blocks, LUN 1 4096-byte blocks.
DISK_MIB=256
DISK_4K_MIB=320
PORTAL_SCHEME=srp
SUITE_NAMES=(IQN PORT PEER_A PEER_B DISK_MIB DISK_4K_MIB)
SUITE_GUEST_FILES=("$VM_TOP/guest/rdma.sh")

suite_start() {
  peer_can srp || report_die "peer $PEER does not serve SRP"
  suite_boot << 'E'
rxe_up
modprobe -a ib_srp sd_mod sg ext4 xfs
mkdir -p /mnt/disk
E
  suite_define
}

suite_define() {
  peer_volume_create disk "$DISK_MIB" 512
  peer_volume_create disk-4k "$DISK_4K_MIB" 4096
  peer_target_create "$IQN" any
  peer_namespace_add "$IQN" 0 disk
  peer_namespace_add "$IQN" 1 disk-4k
  peer_portal_add "$PEER_A" "$PORT"
}

# connect_lines TARGET [ARGUMENT]...: what `ramport connect-line` prints to connect through the portal on br0.
connect_lines() { daemon --json connect-line "$1" --portal "srp://$PEER_A:$PORT" "${@:2}" | jq -r '.portals[].connect[]'; }

# The plain set-up and tear-down of most files.
attach_host() { guest CONNECT="$(connect_lines "$IQN")" <<< 'attach'; }
detach_host() { guest <<< 'detach'; }
