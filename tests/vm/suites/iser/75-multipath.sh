# A portal's sessions by iSER and by TCP as two paths of dm-multipath.
# shellcheck shell=bash

PORTAL_TCP=iscsi://$PEER_A:$PORT,$GROUP_A

setup() {
  daemon portal create "$PORTAL_TCP"
  multipath_up
  guest QUICK="$MULTIPATH_QUICK" << 'G'
# shellcheck disable=SC2086
{
  attach "$IQN" "$PEER_A" $QUICK
  IFACE=default attach "$IQN" "$PEER_A" $QUICK
}
G
}
teardown() {
  # Where the test has failed meanwhile, the files after it want the portal.
  daemon portal show "iser://$PEER_A:$PORT,$GROUP_A" > /dev/null 2>&1 || daemon portal set "$PORTAL_TCP" --rdma on
  multipath_down
  daemon portal remove "$PORTAL_TCP" --force
}

# The portal's RDMA is switched off and on, then the session by TCP ends; no I/O fails, and nothing that was acknowledged is lost.
test_a_host_moves_to_tcp_at_the_same_portal_and_back_under_io() {
  guest << 'G'
paths_become active 2 60
by_iser "$(session "$IQN" "$PEER_A" iser)"
not by_iser "$(session "$IQN" "$PEER_A" default)"
io_started host-moves "$(disk 0)" verified_for_a_while host-moves "$(map)"
G
  daemon portal set "$PORTAL_TCP" --rdma off --force
  guest << 'G'
paths_become failed 1 40
not logged_in "$(session "$IQN" "$PEER_A" iser)"
disk=$(device "$(session "$IQN" "$PEER_A" default)" 0)
eventually 20 serves_more "$disk" "$(served "$disk")"
G
  daemon portal set "$PORTAL_TCP" --rdma on
  guest << 'G'
paths_become active 2 60
by_rdma=$(session "$IQN" "$PEER_A" iser)
logged_in "$by_rdma"
IFACE=default node "$IQN" "$PEER_A" --logout
disk=$(device "$by_rdma" 0)
eventually 20 serves_more "$disk" "$(served "$disk")"
io_ended host-moves 60
G
}
