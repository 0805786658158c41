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
