# Both hash functions, by nvme-cli 2.16 and tlshd 1.4 or later. This nvme-cli derives keys as the specification says, with --compat
# as it did before.
# shellcheck shell=bash

# shellcheck source=tests/vm/suites/nvme-tcp/dhchap.sh
. "$VM_TOP/suites/nvme-tcp/dhchap.sh"
AT=$PORT_ALLOWED

setup() { needs_tls; }
teardown() { guest <<< 'not_connected "$CLOSED" || disconnect "$CLOSED"'; }

test_sha256_as_specified() {
  carries_data "$PORT_REQUIRED" 1 0
  carries_data "$PORT_REQUIRED" 1 1
}

test_sha384_as_specified() {
  carries_data "$PORT_REQUIRED" 2 0
  carries_data "$PORT_REQUIRED" 2 1
}

test_both_as_before() {
  carries_data "$PORT_ALLOWED" 1 0 --compat
  carries_data "$PORT_ALLOWED" 1 1 --compat
  carries_data "$PORT_REQUIRED" 2 0 --compat
  carries_data "$PORT_REQUIRED" 2 1 --compat
}

test_generated_keys_are_those_of_the_host() {
  generated_keys_connect sha256
  generated_keys_connect sha384
}

test_a_generated_key_of_sha384_carries_data() { concatenates sha384 ffdhe2048; }
