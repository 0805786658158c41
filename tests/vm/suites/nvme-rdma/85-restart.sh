# The daemon ends without warning and comes back; its portal is switched off and on; its adapter is taken away and comes back.
# What its RAM volumes held is lost by design with the daemon; its definitions are not, so the host takes up where it was.
# shellcheck shell=bash

setup() { guest <<< 'connect "$PEER_A" --keep-alive-tmo=5 --reconnect-delay=1 --ctrl-loss-tmo=600'; }
teardown() { disconnect_host; }

test_io_goes_on_after_a_crash() { io_goes_on_after_a_crash; }

# The host's only path goes and comes back; nothing that was acknowledged is lost, and no I/O fails.
test_io_goes_on_while_the_portal_is_switched_off_and_on() {
  daemon portal create "nvme+tcp://$PEER_A:$PORT"
  guest <<< 'io_started switch "$(device 1)" verified_for_a_while switch "$(device 1)"'
  daemon portal set "nvme+tcp://$PEER_A:$PORT" --rdma off --force
  guest << 'E'
# shellcheck disable=SC2046
lost() { ! live $(controllers); }
eventually 40 lost
E
  daemon portal set "nvme+tcp://$PEER_A:$PORT" --rdma on
  guest << 'E'
# shellcheck disable=SC2046
back() { live $(controllers); }
eventually 60 back
io_ended switch 60
E
  daemon portal remove "nvme+tcp://$PEER_A:$PORT" --force
}

test_io_goes_on_while_the_adapter_is_away() {
  peer_can lose-adapters || skip "this peer has no adapter to lose"
  guest <<< 'io_started away "$(device 1)" verified_for_a_while away "$(device 1)"'
  peer_adapter_away
  guest << 'E'
# shellcheck disable=SC2046
lost() { ! live $(controllers); }
eventually 40 lost
E
  peer_adapter_back
  guest << 'E'
# shellcheck disable=SC2046
back() { live $(controllers); }
eventually 60 back
io_ended away 60
E
}
