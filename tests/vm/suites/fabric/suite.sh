# RDMA between crate fabric's two providers: adapters (rdma_rxe, in the guest's first network namespace) and software (in its
# namespace "peer", at the other end of a veth). What runs is the crate's behavioural suite, and rdma-core's own programs.
# shellcheck shell=bash disable=SC2034

HW_4=10.2.0.1
SOFT_4=10.2.0.2
HW_6=fd02::1
SOFT_6=fd02::2
SUITE_NAMES=(HW_4 SOFT_4 HW_6 SOFT_6)
SUITE_GUEST_FILES=("$VM_TOP/guest/rdma.sh")

suite_start() {
  local program
  # Its captures look at these.
  net_bridge br0 10.77.0.1/24
  net_bridge br1 10.77.1.1/24
  guest_start host -m 1024 -p "$(guest_script <<< ends_up)"
  cp "$RAMPORT" "$VM_STATE/host/share/ramport"
  for program in fabric_{suite,hold,ping,pingpong}; do
    cp "$(suite_example fabric "$program")" "$VM_STATE/host/share/"
  done
}

# No daemon takes part.
peer_alive() { :; }
peer_stop() { :; }
peer_log() { :; }
