# DH-HMAC-CHAP: Linux's host proves its secret, and the target proves its own to it.
# shellcheck shell=bash

# shellcheck source=tests/vm/suites/nvme-tcp/dhchap.sh
. "$VM_TOP/suites/nvme-tcp/dhchap.sh"

setup() { closed_target; }
teardown() { closed_disconnected; }

test_every_hash_function_both_ways() {
  needs_auth
  local hash number=0
  for hash in sha256 sha384 sha512; do
    number=$((number + 1))
    secrets "$number"
    both_ways "$hash" none
  done
}

test_with_a_group_both_ways() {
  needs_auth
  secrets 1
  both_ways sha256 ffdhe2048
  both_ways sha512 ffdhe3072
}

# Emulated processors take seconds for each power of these.
test_large_groups_both_ways() {
  needs_auth
  secrets 2
  both_ways sha256 ffdhe4096
  both_ways sha384 ffdhe6144
  both_ways sha512 ffdhe8192
}

test_a_secret_without_transformation() {
  needs_auth
  secrets 0
  both_ways sha256 ffdhe2048
}

test_one_way() {
  needs_auth
  secrets 1
  require sha256 none
  auth_guest << 'E'
proven --dhchap-secret="$SECRET"
eventually 30 device 1 "$CLOSED"
disconnect "$CLOSED"
E
}

test_without_a_secret_or_with_another_one_it_is_refused() {
  needs_auth
  without_a_secret_or_with_another_one_it_is_refused
}

test_a_target_with_another_secret_is_left() {
  needs_auth
  secrets 1
  require sha256 none
  auth_guest << 'E'
refused 'could not add new controller' proven --dhchap-secret="$SECRET" --dhchap-ctrl-secret="$WRONG"
told
dmesg | grep 'controller authentication failed'
not_connected "$CLOSED"
E
}

test_a_host_authenticates_again_with_a_new_secret() {
  needs_auth
  a_host_authenticates_again_with_a_new_secret
}

test_io_goes_on_after_a_crash() {
  needs_auth
  secrets 1
  require sha256 none
  proven_io_goes_on_after_a_crash ''
  closed_disconnected
}

test_generated_secrets_are_those_of_the_host() {
  needs_auth
  SECRET=$(daemon --json host keygen "$HOST_1" | jq -r .secret)
  CTRL=$(daemon --json host keygen --hash sha384 | jq -r .secret) WRONG=
  guest SECRET="$SECRET" CTRL="$CTRL" << 'E'
nvme check-dhchap-key --key="$SECRET"
nvme check-dhchap-key --key="$CTRL"
E
  both_ways sha384 ffdhe2048
}
