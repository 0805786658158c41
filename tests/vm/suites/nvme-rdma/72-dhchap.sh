# DH-HMAC-CHAP over RDMA. Every hash function and group is in nvme-tcp/72-dhchap.
# shellcheck shell=bash

# shellcheck source=tests/vm/suites/nvme-tcp/dhchap.sh
. "$VM_TOP/suites/nvme-tcp/dhchap.sh"

setup() { closed_target; }
teardown() { closed_disconnected; }

test_both_ways_with_and_without_a_group() {
  needs_auth
  secrets 1
  both_ways sha384 none
  both_ways sha256 ffdhe2048
}

test_without_a_secret_or_with_another_one_it_is_refused() {
  needs_auth
  without_a_secret_or_with_another_one_it_is_refused
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
}
