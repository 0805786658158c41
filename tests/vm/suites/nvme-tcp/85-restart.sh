# The peer ends without warning and comes back. What its RAM volumes held is lost by
# design; its definitions are not, so the host takes up where it was.
# shellcheck shell=bash

setup() { guest <<< 'connect "$PEER_A" --keep-alive-tmo=5 --reconnect-delay=1 --ctrl-loss-tmo=600'; }
teardown() { disconnect_host; }

test_io_goes_on_after_a_crash() { io_goes_on_after_a_crash; }

test_targets_and_hosts_are_still_defined() {
  guest << 'E'
nvme discover -t tcp -a "$PEER_A" -s "$PORT" | grep -F "$NQN"
has_size_mib "$(device 1)" "$DISK_MIB"
has_size_mib "$(device 2)" "$DISK_4K_MIB"
E
}
