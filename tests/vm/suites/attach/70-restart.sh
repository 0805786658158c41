# The target ends without warning and comes back while a file system on the disk is in use; and it stays away.
# shellcheck shell=bash

setup() {
  needs_modules ublk_drv
  guest <<< 'modprobe ublk_drv'
}
teardown() { :; }

test_verified_io_goes_on_after_a_crash() {
  guest << 'G'
attached disk "$(nvme)"
mkfs.ext4 -q -F "$DISK"
mkdir -p /mnt/disk
mount "$DISK" /mnt/disk
truncate --size 32M /mnt/disk/file
io_started through "$DISK" verified_for_a_while through /mnt/disk/file
G
  peer_crash
  guest << 'G'
io_ended through 60
umount /mnt/disk
DISK=$(/share/ramport --json detach | jq -r '.[0].device')
e2fsck -fn "$DISK"
detached disk
G
}

# Requests fail after a bounded time instead of stopping the machine.
test_requests_fail_when_the_target_stays_away() {
  guest <<< 'attached disk "$(nvme)" --give-up-after 5s'
  peer_portal_remove "$PEER_A" "$PORT"
  guest << 'G'
DISK=$(/share/ramport --json detach | jq -r '.[0].device')
begun=$SECONDS
not dd if="$DISK" of=/dev/null bs=4k count=1 iflag=direct status=none
[ $((SECONDS - begun)) -lt 60 ]
detached disk
G
  peer_portal_add "$PEER_A" "$PORT"
}
