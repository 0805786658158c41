# A stripe of disks of two other machines, over two protocols.
# shellcheck shell=bash

setup() {
  needs_modules xfs
  far_up nvme 176M "nvme+tcp://$PEER_A:4421" nqn.2026-01.test.ramport:far
  far_up iscsi 176M "iscsi://$PEER_A:3261" iqn.2026-01.test.ramport:far
  daemon volume create far-nvme --remote "nvme+tcp://$PEER_A:4421/nqn.2026-01.test.ramport:far"
  daemon volume create far-iscsi --remote "iscsi://$PEER_A:3261/iqn.2026-01.test.ramport:far/0"
  daemon volume create s0 --stripe far-nvme,far-iscsi --stripe-unit 64K
  offer 1 s0
  connect_host
}
teardown() { disconnect_host; }

test_io_goes_on_while_other_machines_restart() {
  guest << 'E'
made_with_tree "$(device 1)" mkfs.xfs -q -f
io_started under "$(device 1)" verified_for_a_while under /mnt/disk/under
E
  on_far nvme peer_crash
  soon has_returned far-nvme
  on_far iscsi peer_crash
  soon has_returned far-iscsi
  guest << 'E'
io_ended under 60
umount /mnt/disk
echo 3 > /proc/sys/vm/drop_caches
mounted "$(device 1)"
has_tree
umount /mnt/disk
checked "$(device 1)" xfs
E
}

# has_returned VOLUME: its path was lost and is up again.
has_returned() { [ "$(shown "$1" '[.paths[] | select(.is_up and .losses > 0)] | length')" = 1 ]; }
