# Secure channel concatenation: Linux's host proves a secret on a plain connection and goes on by TLS with the key that both have
# generated. It never has the target prove a secret then, whatever it is given (its S2 is 0). SHA-384 is in 20-keys-later, since tlshd 1.0
# has no keys of 48 bytes that work.
# shellcheck shell=bash

# shellcheck source=tests/vm/suites/nvme-tcp/dhchap.sh
. "$VM_TOP/suites/nvme-tcp/dhchap.sh"
AT=$PORT_ALLOWED

setup() { needs_tls; }
teardown() { closed_disconnected; }

test_a_generated_key_carries_data() {
  concatenates sha256 ffdhe2048
  concatenates sha256 ffdhe3072
}

test_without_a_secret_or_with_another_one_it_is_refused() {
  secrets 1
  require sha256 ffdhe2048
  auth_guest << 'E'
refused 'could not add new controller' proven --concat
refused 'could not add new controller' proven --concat --dhchap-secret="$WRONG"
dmesg | grep 'qid 0: authentication failed'
not_connected "$CLOSED"
E
}

test_where_tls_is_off_or_required_it_is_refused() {
  secrets 1
  require sha256 ffdhe2048
  for AT in "$PORT" "$PORT_REQUIRED"; do
    auth_guest << 'E'
refused 'could not add new controller' proven --concat --dhchap-secret="$SECRET"
told || :
not_connected "$CLOSED"
E
  done
}

test_a_reset_generates_another_key() {
  secrets 1
  require sha256 ffdhe2048
  auth_guest << 'E'
trap told ERR
proven --concat --dhchap-secret="$SECRET"
disk=$(eventually 30 device 1 "$CLOSED")
controller=$(controllers "$CLOSED")
before=$(cat "/sys/class/nvme/$controller/tls_key")
io_started change "$disk" verified_for_a_while change "$disk"
nvme reset "/dev/$controller"
# shellcheck disable=SC2046
back() { live $(controllers "$CLOSED") && device 1 "$CLOSED"; }
eventually 60 back
io_ended change 60
over_tls
not same "$(cat "/sys/class/nvme/$controller/tls_key")" "$before"
disconnect "$CLOSED"
E
}

test_io_goes_on_after_a_crash_of_the_target() {
  secrets 1
  require sha256 ffdhe2048
  proven_io_goes_on_after_a_crash --concat
  guest << 'E'
over_tls
disconnect "$CLOSED"
E
}

# Linux authenticates again when a secret is written, and asks for another key then (REPLACETLSPSK). Its connections go on.
test_a_host_replaces_its_key_within_tls() {
  secrets 1
  require sha256 ffdhe2048
  auth_guest << 'E'
trap told ERR
proven --concat --dhchap-secret="$SECRET"
disk=$(eventually 30 device 1 "$CLOSED")
controller=$(controllers "$CLOSED")
io_started replace "$disk" verified_for_a_while replace "$disk"
before=$(proofs)
key=$(cat "/sys/class/nvme/$controller/tls_configured_key")
echo "$SECRET" > "/sys/class/nvme/$controller/dhchap_secret"
eventually 30 proofs_above "$before"
replaced() { [ "$(cat "/sys/class/nvme/$controller/tls_configured_key")" != "$key" ]; }
eventually 10 replaced
io_ended replace 60
live "$controller"
over_tls
disconnect "$CLOSED"
E
}
