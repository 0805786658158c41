# The lines that `ramport connect-line` prints, as they are printed.
# shellcheck shell=bash

OFFERED=$IQN-offered
SECRET=open-sesame-please
BACK=and-the-other-way

setup() {
  peer_volume_create offered 16 512
  peer_host_chap "$HOST_1" alice "$SECRET" ours "$BACK"
  peer_target_create "$OFFERED" "$HOST_1"
  peer_namespace_add "$OFFERED" 0 offered
}
teardown() {
  guest OFFERED="$OFFERED" <<< 'not_attached "$OFFERED" || detach "$OFFERED"'
  peer_target_remove "$OFFERED"
  peer_host_remove "$HOST_1"
}

lines() { daemon --json connect-line "$OFFERED" --portal "$PORTAL_SCHEME://$PEER_A:$PORT,$GROUP_A" | jq -r "$1"; }

test_printed_lines_log_in_with_chap_and_out() {
  guest OFFERED="$OFFERED" SECRET="$SECRET" BACK="$BACK" DISCOVER="$(lines '.portals[].discover[]')" \
    CONNECT="$(lines '.portals[].connect[]')" BOOT="$(lines '.portals[].at_boot.commands[0]')" \
    DISCONNECT="$(lines '.disconnect[]')" DISK="$(lines '.disks[0].device')" << 'E'
echo "$DISCOVER" > /tmp/discover
echo "$CONNECT" > /tmp/connect
# The lines ask for the secrets.
printf '%s\n' "$SECRET" "$BACK" | bash -e /tmp/discover | tee /tmp/found
grep -F "$OFFERED" /tmp/found
printf '%s\n' "$SECRET" "$BACK" | bash -e /tmp/connect
disk=$(eventually 15 device "$(session "$OFFERED")" 0)
# udev, which does not run here, names disks after what scsi_id prints.
same "/dev/disk/by-id/scsi-$(/lib/udev/scsi_id --whitelisted --device="$disk")" "$DISK" "the disk's path"
bash -e <<< "$BOOT"
iscsiadm -m node -T "$OFFERED" -p "$PEER_A:$PORT" | grep -x 'node.startup = automatic'
bash -e <<< "$DISCONNECT"
eventually 10 not_attached "$OFFERED"
E
}
