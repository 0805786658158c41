# The discovery subsystem.
# shellcheck shell=bash

test_discover_finds_the_target_at_the_portal_asked() {
  guest << 'E'
for address in "$PEER_A" "$PEER_B"; do
  nvme discover -t tcp -a "$address" -s "$PORT" -o json > /tmp/log.json
  cat /tmp/log.json
  jq -r '.records[] | "\(.subnqn) \(.subtype) \(.trtype) \(.adrfam) \(.traddr) \(.trsvcid)"' /tmp/log.json |
    grep -x "$NQN nvme subsystem tcp ipv4 $address $PORT"
done
E
}

test_persistent_discovery_tells_of_a_new_target() {
  # A target that goes away again, so that this test can be repeated.
  guest << 'E'
modprobe nvme-tcp
busybox uevent env > /tmp/uevents 2>&1 &
nvme discover --persistent -t tcp -a "$PEER_A" -s "$PORT" -o json > /tmp/before.json
controllers "$DISCOVERY" | grep -q nvme
# A restart of the discovery controller's event loop is what the kernel reports by an uevent.
E
  peer_volume_create announced 16 4096
  peer_target_create "$NQN-announced" any
  peer_namespace_add "$NQN-announced" 1 announced
  guest << 'E'
eventually 10 grep -q 'NVME_AEN=0x70f002' /tmp/uevents
controller=$(controllers "$DISCOVERY" | head -n 1)
nvme discover -t tcp -a "$PEER_A" -s "$PORT" --device "$controller" -o json > /tmp/after.json
jq -r '.records[].subnqn' /tmp/after.json | grep -x "$NQN-announced"
[ "$(jq .genctr /tmp/after.json)" != "$(jq .genctr /tmp/before.json)" ]
killall uevent busybox || :
disconnect "$DISCOVERY"
E
}
