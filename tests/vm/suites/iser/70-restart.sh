# The peer ends without warning and comes back, or its portal, or its adapter: the session takes up where it was.
# shellcheck shell=bash

setup() { attach_host; }
teardown() { detach_host; }

test_io_goes_on_after_a_crash() { io_goes_on_after_a_crash; }

# The initiator's only portal goes and comes back: no I/O fails.
test_io_goes_on_while_the_portal_is_switched_off_and_on() {
  daemon portal create "iscsi://$PEER_A:$PORT,$GROUP_A"
  guest << 'G'
io_started switch "$(disk 0)" verified_for_a_while switch "$(disk 0)"
session "$IQN" > /tmp/session
G
  daemon portal set "iscsi://$PEER_A:$PORT,$GROUP_A" --rdma off --force
  guest << 'G'
lost() { ! logged_in "$(session "$IQN")"; }
eventually 40 lost
G
  daemon portal set "iscsi://$PEER_A:$PORT,$GROUP_A" --rdma on
  guest << 'G'
same "$(session "$IQN")" "$(cat /tmp/session)" session
eventually 60 logged_in "$(session "$IQN")"
io_ended switch 60
G
  daemon portal remove "iscsi://$PEER_A:$PORT,$GROUP_A" --force
}

test_io_goes_on_while_the_adapter_is_away() {
  peer_can lose-adapters || skip "this peer has no adapter to lose"
  guest << 'G'
io_started away "$(disk 0)" verified_for_a_while away "$(disk 0)"
session "$IQN" > /tmp/session
G
  peer_adapter_away
  guest << 'G'
lost() { ! logged_in "$(session "$IQN")"; }
eventually 40 lost
G
  peer_adapter_back
  guest << 'G'
same "$(session "$IQN")" "$(cat /tmp/session)" session
eventually 60 logged_in "$(session "$IQN")"
io_ended away 60
G
}

test_logout_under_io_ends_cleanly() { logout_under_io; }
