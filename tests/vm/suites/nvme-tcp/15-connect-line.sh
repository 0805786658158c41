# The lines that `ramport connect-line` prints, as they are printed.
# shellcheck shell=bash

# lines OF: of the main target for the first host, through the portal on br0.
lines() { daemon --json connect-line "$NQN" --host "$HOST_1" --portal "$PORTAL_SCHEME://$PEER_A:$PORT" | jq -r "$1"; }

test_printed_lines_connect_and_disconnect() {
  [ "$PEER" = ramport ] || skip "the peer does not print lines"
  guest DISCOVER="$(lines '.portals[].discover[]')" CONNECT="$(lines '.portals[].connect[]')" \
    DISCONNECT="$(lines '.disconnect[]')" DISK="$(lines '.disks[0].device')" << 'E'
bash -ex <<< "$DISCOVER" | tee /tmp/found
grep -F "$NQN" /tmp/found
bash -ex <<< "$CONNECT"
disk=$(eventually 10 device 1)
# udev, which does not run here, names disks so.
same "/dev/disk/by-id/nvme-$(cat "/sys/block/${disk#/dev/}/wwid")" "$DISK" "the disk's path"
dd if="$disk" of=/dev/null bs=64k count=4 iflag=direct status=none
bash -ex <<< "$DISCONNECT"
eventually 10 not_connected
E
}

test_the_line_for_booting_connects() {
  [ "$PEER" = ramport ] || skip "the peer does not print lines"
  guest LINE="$(lines '.portals[].at_boot.file.line')" FILE="$(lines '.portals[].at_boot.file.path')" << 'E'
[ ! -e "$FILE" ] || mv "$FILE" /tmp/discovery.conf
echo "$LINE" > "$FILE"
nvme connect-all
eventually 10 device 1
disconnect
rm "$FILE"
[ ! -e /tmp/discovery.conf ] || mv /tmp/discovery.conf "$FILE"
E
}
