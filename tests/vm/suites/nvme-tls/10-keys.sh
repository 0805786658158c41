# TLS with keys of nvme-cli and handshakes of tlshd. Debian 13's tlshd 1.0.0 proves keys of 48 bytes by SHA-256, but offers only
# cipher suites of SHA-384 for them, so 20-keys-later.sh has these.
# shellcheck shell=bash

setup() { needs_tls; }
teardown() { guest <<< 'not_connected "$CLOSED" || disconnect "$CLOSED"'; }

test_sha256_by_both_versions_of_identities() {
  carries_data "$PORT_REQUIRED" 1 0
  carries_data "$PORT_REQUIRED" 1 1
}

test_where_tls_is_allowed_the_host_decides() {
  carries_data "$PORT_ALLOWED" 1 1
  guest << 'E'
attach "$PORT_ALLOWED"
not over_tls
disk=$(eventually 20 device 1 "$CLOSED")
verified plain "$disk" --rw=randwrite --bs=4k --iodepth=8 --size=1m
disconnect "$CLOSED"
E
}

test_hosts_without_the_right_key_are_refused() {
  local ours theirs
  ours=$(key 1) theirs=$(key 1)
  define "$ours"
  guest THEIRS="$theirs" << 'E'
forget_keys
refused 'could not add new controller' attach "$PORT_REQUIRED"
refused 'could not add new controller' attach "$PORT_REQUIRED" --tls
for version in 0 1; do
  insert "$THEIRS" "$version" "$CLOSED"
  refused 'could not add new controller' attach "$PORT_REQUIRED" --tls
  forget_keys
done
not_connected "$CLOSED"
E
  grep 'did not start TLS' "$DAEMON_DIR/log"
  grep "host $HOST_1 has another TLS key" "$DAEMON_DIR/log"
}

test_tls_where_the_portal_has_none_is_refused() {
  local made
  made=$(key 1)
  define "$made"
  guest KEY="$made" << 'E'
forget_keys
insert "$KEY" 1 "$CLOSED"
refused 'could not add new controller' attach "$PORT" --tls
not_connected "$CLOSED"
E
  grep 'which this portal does not offer' "$DAEMON_DIR/log"
}

test_the_discovery_log_says_whether_tls_is_used() {
  local made
  made=$(key 1)
  define "$made"
  guest KEY="$made" << 'E'
forget_keys
insert "$KEY" 1 "$DISCOVERY"
trap told ERR
nvme discover -t tcp -a "$PEER_A" -s "$PORT_REQUIRED" --tls --output-format=json > /tmp/found
nvme discover -t tcp -a "$PEER_A" -s "$PORT_REQUIRED" --tls | tee /tmp/found.txt
jq -r --arg nqn "$CLOSED" '.records[] | select(.subnqn == $nqn) | "\(.trsvcid) \(.treq) \(.sectype)"' /tmp/found | sort | tee /tmp/told
{
  echo "$PORT not specified, sq flow control disable supported none"
  echo "$PORT_REQUIRED required, sq flow control disable supported tls13"
  echo "$PORT_ALLOWED not required, sq flow control disable supported tls13"
} | sort > /tmp/expected
diff /tmp/expected /tmp/told
E
}

test_io_goes_on_after_a_crash_of_the_target() {
  local made
  made=$(key 1)
  define "$made"
  guest KEY="$made" << 'E'
forget_keys
insert "$KEY" 1 "$CLOSED"
attach "$PORT_REQUIRED" --tls --keep-alive-tmo=5 --reconnect-delay=1 --ctrl-loss-tmo=600
disk=$(eventually 20 device 1 "$CLOSED")
io_started through "$disk" written_for_a_while through "$disk"
E
  peer_crash
  guest << 'E'
trap told ERR
# shellcheck disable=SC2046
back() { live $(controllers "$CLOSED") && device 1 "$CLOSED"; }
eventually 60 back
io_ended through 60
over_tls
verified after "$(device 1 "$CLOSED")" --rw=randwrite --bs=4k --iodepth=16 --size=4m
disconnect "$CLOSED"
E
}

test_a_key_is_changed_while_two_are_valid() {
  local old new
  old=$(key 1) new=$(key 1)
  define "$old"
  guest KEY="$old" << 'E'
forget_keys
insert "$KEY" 1 "$CLOSED"
attach "$PORT_REQUIRED" --tls --reconnect-delay=1
disk=$(eventually 20 device 1 "$CLOSED")
io_started change "$disk" verified_for_a_while change "$disk"
E
  define "$old" "$new"
  guest KEY="$new" << 'E'
trap told ERR
over_tls
old=$(cat "/sys/class/nvme/$(controllers "$CLOSED")/tls_key")
forget_keys
insert "$KEY" 1 "$CLOSED"
nvme reset "/dev/$(controllers "$CLOSED")"
# shellcheck disable=SC2046
back() { live $(controllers "$CLOSED") && device 1 "$CLOSED"; }
eventually 60 back
io_ended change 60
not same "$(cat "/sys/class/nvme/$(controllers "$CLOSED")/tls_key")" "$old"
E
  define "$new"
  guest << 'E'
verified new "$(device 1 "$CLOSED")" --rw=randwrite --bs=4k --iodepth=8 --size=1m
disconnect "$CLOSED"
attach "$PORT_REQUIRED" --tls
over_tls
disconnect "$CLOSED"
E
}

test_generated_keys_are_those_of_the_host() { generated_keys_connect sha256; }
