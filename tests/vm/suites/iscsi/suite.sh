# iSCSI with Linux's initiator, open-iscsi: what the tests of this suite share.
# shellcheck shell=bash disable=SC2034

IQN=iqn.2026-01.test.ramport:main
HOST_1=iqn.2026-01.test.ramport:host-1
HOST_2=iqn.2026-01.test.ramport:host-2
PORT=3260
# Each portal is a group of its own, so that each is a SCSI target port.
GROUP_A=1
GROUP_B=2
# LUN 0 has 512-byte blocks, LUN 1 4096-byte blocks.
DISK_MIB=256
DISK_4K_MIB=320
PORTAL_SCHEME=iscsi
SUITE_NAMES=(IQN HOST_1 HOST_2 PORT GROUP_A GROUP_B PEER_A PEER_B DISK_MIB DISK_4K_MIB)

suite_start() {
  peer_can iscsi || report_die "peer $PEER does not serve iSCSI"
  suite_boot <<< 'modprobe -a iscsi_tcp sd_mod sg crc32c ext4 xfs; be_initiator'
  suite_define
}

suite_define() {
  peer_volume_create disk "$DISK_MIB" 512
  peer_volume_create disk-4k "$DISK_4K_MIB" 4096
  peer_target_create "$IQN" any
  peer_namespace_add "$IQN" 0 disk
  peer_namespace_add "$IQN" 1 disk-4k
  peer_portal_add "$PEER_A" "$PORT,$GROUP_A"
  peer_portal_add "$PEER_B" "$PORT,$GROUP_B"
}

# The plain set-up and tear-down of most files.
attach_host() { guest <<< 'attach "$IQN" "$PEER_A"'; }
detach_host() { guest <<< 'detach "$IQN"'; }

# io_goes_on_after_a_crash: the peer's; its RAM contents are lost, its definitions are not.
io_goes_on_after_a_crash() {
  guest << 'E'
dd if=/dev/urandom of="$(disk 1)" bs=1M count=4 oflag=direct status=none
io_started through "$(disk 0)" written_for_a_while through "$(disk 0)"
session "$IQN" > /tmp/session
cat "/sys/block/$(basename "$(disk 0)")/device/wwid" > /tmp/wwid
E
  peer_crash
  guest << 'E'
same "$(session "$IQN")" "$(cat /tmp/session)" session
eventually 60 logged_in "$(session "$IQN")"
io_ended through 60
same "$(cat "/sys/block/$(basename "$(disk 0)")/device/wwid")" "$(cat /tmp/wwid)" "identifier of the LUN"
dd if="$(disk 1)" bs=1M count=4 iflag=direct status=none | cmp -n 4194304 - /dev/zero
verified after "$(disk 0)" --rw=randwrite --bs=4k --iodepth=16 --size=4m
E
}

logout_under_io() {
  guest << 'E'
cut_off "$(disk 0)" detach "$IQN"
attach "$IQN" "$PEER_A"
verified again "$(disk 0)" --rw=randwrite --bs=4k --iodepth=8 --size=2m
E
}

# dm-multipath over LUN 0; it wants udev, which nothing else here runs. A path is told as failed a few seconds after it is lost with
# these settings of open-iscsi.
MULTIPATH_QUICK="node.session.timeo.replacement_timeout=1 node.conn[0].timeo.noop_out_interval=1 node.conn[0].timeo.noop_out_timeout=2"

multipath_up() {
  needs_modules dm_multipath dm_round_robin dm_service_time drivers/scsi/device_handler
  guest << 'E'
modprobe -a dm_multipath dm_round_robin dm_service_time scsi_dh_alua
cat > /etc/multipath.conf << 'C'
defaults {
  find_multipaths no
  user_friendly_names no
  path_grouping_policy multibus
  path_selector "round-robin 0"
  polling_interval 1
  max_polling_interval 1
  no_path_retry 300
}
blacklist {
  devnode "^(vd|ram|loop|nbd|nullb|nvme|zram)"
}
C
/lib/systemd/systemd-udevd --daemon
udevadm trigger --settle --subsystem-match=block
multipathd
E
}

# The sessions end too.
multipath_down() {
  guest << 'E'
multipathd shutdown || :
ended() { ! pidof "$@"; }
eventually 10 ended multipathd > /dev/null
# udev looks at a map for a while after each change.
eventually 20 multipath -F > /dev/null
# Asked to end, it waits for what its workers are at, which may take minutes. Nothing needs them any more.
kill -KILL $(pidof systemd-udevd)
eventually 10 ended systemd-udevd > /dev/null
detach "$IQN"
E
}

# offer_with_chap, unoffer: a target of its own, for the first host, whose secret and the target's are asked for.
OFFERED=$IQN-offered
SECRET=open-sesame-please
BACK=and-the-other-way
offer_with_chap() {
  peer_volume_create offered 16 512
  peer_host_chap "$HOST_1" alice "$SECRET" ours "$BACK"
  peer_target_create "$OFFERED" "$HOST_1"
  peer_namespace_add "$OFFERED" 0 offered
}
unoffer() {
  guest OFFERED="$OFFERED" <<< 'not_attached "$OFFERED" || detach "$OFFERED"'
  peer_target_remove "$OFFERED"
  peer_host_remove "$HOST_1"
}

# The lines that `ramport connect-line` prints for that target through the portal on br0: what jq selects.
lines() { daemon --json connect-line "$OFFERED" --portal "$PORTAL_SCHEME://$PEER_A:$PORT,$GROUP_A" | jq -r "$1"; }

# Executed as they are printed.
printed_lines_log_in_with_chap_and_out() {
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
iscsiadm -m session | grep -F "$OFFERED" | grep "^${IFACE:-tcp}: "
# udev, which does not run here, names disks after what scsi_id prints.
same "/dev/disk/by-id/scsi-$(/lib/udev/scsi_id --whitelisted --device="$disk")" "$DISK" "the disk's path"
bash -e <<< "$BOOT"
iscsiadm -m node -T "$OFFERED" -p "$PEER_A:$PORT" | grep -x 'node.startup = automatic'
bash -e <<< "$DISCONNECT"
eventually 10 not_attached "$OFFERED"
E
}
