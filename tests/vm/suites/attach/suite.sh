# Disks that `ramport attach` makes block devices of the guest, by ublk and by FUSE with a loop device, over the protocols that its
# initiators have: what the tests of this suite share. Targets are on this machine.
# shellcheck shell=bash disable=SC2034

NQN=nqn.2026-01.test.ramport:main
IQN=iqn.2026-01.test.ramport:main
PORT=4420
ISCSI_PORT=3260
# Namespace 1 has 512-byte blocks, namespace 2 4096-byte blocks. Files outlive the daemon.
DISK_MIB=256
DISK_4K_MIB=64
PORTAL_SCHEME=nvme+tcp
SUITE_NAMES=(NQN IQN PORT ISCSI_PORT PEER_A PEER_B DISK_MIB DISK_4K_MIB)

suite_start() {
  suite_boot <<< 'modprobe -a fuse loop ext4'
  suite_define
}

suite_define() {
  mkdir -p "$VM_STATE/files"
  daemon volume create disk --file "$VM_STATE/files/disk.img" --size "${DISK_MIB}M"
  daemon volume create disk-4k --file "$VM_STATE/files/disk-4k.img" --size "${DISK_4K_MIB}M" --block-size 4096
  peer_target_create "$NQN" any
  peer_namespace_add "$NQN" 1 disk
  peer_namespace_add "$NQN" 2 disk-4k
  peer_portal_add "$PEER_A" "$PORT"
  daemon target create "$IQN" --volume disk --allow-any-host
  daemon portal create "iscsi://$PEER_A:$ISCSI_PORT"
}
