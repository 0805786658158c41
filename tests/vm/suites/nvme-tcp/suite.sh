# NVMe/TCP with Linux's host and nvme-cli: what the tests of this suite share.
# shellcheck shell=bash disable=SC2034

NQN=nqn.2026-01.test.ramport:main
HOST_1=nqn.2014-08.org.nvmexpress:uuid:11111111-1111-4111-8111-111111111111
HOST_2=nqn.2014-08.org.nvmexpress:uuid:22222222-2222-4222-8222-222222222222
PORT=4420
DISCOVERY=nqn.2014-08.org.nvmexpress.discovery
# Namespace 1 has 512-byte blocks, namespace 2 4096-byte blocks.
DISK_MIB=256
DISK_4K_MIB=320
PORTAL_SCHEME=nvme+tcp
TRANSPORT=tcp
SUITE_NAMES=(TRANSPORT NQN DISCOVERY HOST_1 HOST_2 PORT PEER_A PEER_B DISK_MIB DISK_4K_MIB)

suite_start() {
  suite_boot <<< 'modprobe -a nvme-tcp ext4 xfs; be_host'
  suite_define
}

suite_define() {
  peer_volume_create disk "$DISK_MIB" 512
  peer_volume_create disk-4k "$DISK_4K_MIB" 4096
  peer_target_create "$NQN" any
  peer_namespace_add "$NQN" 1 disk
  peer_namespace_add "$NQN" 2 disk-4k
  peer_portal_add "$PEER_A" "$PORT"
  peer_portal_add "$PEER_B" "$PORT"
}

# The plain set-up and tear-down of most files.
connect_host() { guest <<< 'connect "$PEER_A"'; }
disconnect_host() { guest <<< 'disconnect'; }

# io_goes_on_after_a_crash: the peer's; its RAM contents are lost, its definitions are not.
io_goes_on_after_a_crash() {
  guest << 'E'
dd if=/dev/urandom of="$(device 2)" bs=1M count=4 oflag=direct status=none
io_started through "$(device 1)" written_for_a_while through "$(device 1)"
cat /sys/block/"$(basename "$(device 1)")"/wwid > /tmp/wwid
E
  peer_crash
  guest << 'E'
# shellcheck disable=SC2046
back() { live $(controllers) && device 1 && device 2; }
eventually 60 back
io_ended through 60
same "$(cat /sys/block/"$(basename "$(device 1)")"/wwid)" "$(cat /tmp/wwid)" "identifier of the namespace"
echo 3 > /proc/sys/vm/drop_caches
dd if="$(device 2)" bs=1M count=4 iflag=direct status=none | cmp -n 4194304 - /dev/zero
verified after "$(device 1)" --rw=randwrite --bs=4k --iodepth=16 --size=4m
E
}

disconnect_under_io() {
  guest << 'E'
connect "$PEER_A"
cut_off "$(device 1)" nvme disconnect -n "$NQN"
eventually 10 not_connected
connect "$PEER_A"
verified again "$(device 1)" --rw=randwrite --bs=4k --iodepth=8 --size=2m
disconnect
E
}

# rounds COUNT: of two hosts side by side, then one that reads, with queues that are polled too. These are not in every round, since
# Linux ends each in 0.2 s, by two waits of a tenth of a second.
rounds() {
  guest COUNT="$1" << 'E'
begun=$SECONDS
# The kernel asks for a transport's module at each connect, though it is there; that starts a process.
read -r modprobe < /proc/sys/kernel/modprobe
echo > /proc/sys/kernel/modprobe
rounds_of "$HOST_1" "$COUNT" &
rounds_of "$HOST_2" "$COUNT"
wait $!
echo "$modprobe" > /proc/sys/kernel/modprobe
not_connected
connect_queues "$HOST_1" nr_io_queues=2,nr_write_queues=2,nr_poll_queues=2 7
eventually 10 device 1 > /dev/null
dd if="$(device 1)" of=/dev/null bs=4k count=1 iflag=direct status=none
delete_controller
eventually 10 not_connected
echo "$COUNT rounds of $((2 * 5)) connections, and one of 7, in $((SECONDS - begun)) s"
E
}

# The lines that `ramport connect-line` prints for the main target and the first host, through the portal on br0: what jq selects.
lines() { daemon --json connect-line "$NQN" --host "$HOST_1" --portal "$PORTAL_SCHEME://$PEER_A:$PORT" | jq -r "$1"; }
needs_lines() { [ "$PEER" != nvmet ] || skip "the peer does not print lines"; }

# Executed as they are printed.
printed_lines_connect_and_disconnect() {
  needs_lines
  guest DISCOVER="$(lines '.portals[].discover[]')" CONNECT="$(lines '.portals[].connect[]')" \
    DISCONNECT="$(lines '.disconnect[]')" DISK="$(lines '.disks[0].device')" << 'E'
bash -ex <<< "$DISCOVER" | tee /tmp/found
grep -F "$NQN" /tmp/found
bash -ex <<< "$CONNECT"
disk=$(eventually 10 device 1)
by_transport
# udev, which does not run here, names disks so.
same "/dev/disk/by-id/nvme-$(cat "/sys/block/${disk#/dev/}/wwid")" "$DISK" "the disk's path"
dd if="$disk" of=/dev/null bs=64k count=4 iflag=direct status=none
bash -ex <<< "$DISCONNECT"
eventually 10 not_connected
E
}

the_line_for_booting_connects() {
  needs_lines
  guest LINE="$(lines '.portals[].at_boot.file.line')" FILE="$(lines '.portals[].at_boot.file.path')" << 'E'
[ ! -e "$FILE" ] || mv "$FILE" /tmp/discovery.conf
echo "$LINE" > "$FILE"
nvme connect-all
eventually 10 device 1
by_transport
disconnect
rm "$FILE"
[ ! -e /tmp/discovery.conf ] || mv /tmp/discovery.conf "$FILE"
E
}
