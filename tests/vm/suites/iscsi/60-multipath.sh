# Two portals as two paths of dm-multipath. multipathd wants udev, which no other test runs.
# shellcheck shell=bash

setup() {
  multipath_up
  guest QUICK="$MULTIPATH_QUICK" << 'E'
# shellcheck disable=SC2086
{
  attach "$IQN" "$PEER_A" $QUICK
  attach "$IQN" "$PEER_B" $QUICK
}
E
}
teardown() {
  net_link "$(guest_tap host 1)" up
  multipath_down
}

test_both_portals_are_paths_of_one_disk() {
  guest << 'E'
paths_become active 2 60
multipath -ll
verified both-paths "$(map)" --rw=randwrite --bs=4k --iodepth=16 --size=8m
for address in "$PEER_A" "$PEER_B"; do
  path=$(device "$(session "$IQN" "$address")" 0)
  echo "$path by $address served $(served "$path") writes"
  serves_more "$path" 100
done
E
}

test_io_goes_on_while_a_wire_is_cut() {
  path_lost_and_found "net_link $(guest_tap host 1) down" "net_link $(guest_tap host 1) up"
}

test_io_goes_on_while_a_portal_is_away() {
  path_lost_and_found "peer_portal_remove $PEER_B $PORT,$GROUP_B" "peer_portal_add $PEER_B $PORT,$GROUP_B"
}

# path_lost_and_found LOSE FIND: verified I/O all the while.
path_lost_and_found() {
  guest << 'E'
paths_become active 2 60
io_started lost-path "$(disk 0)" verified_for_a_while lost-path "$(map)"
E
  $1
  guest << 'E'
paths_become failed 1 40
paths_become active 1 20
dd if="$(map)" of=/dev/null bs=4k count=4 iflag=direct status=none
E
  $2
  guest << 'E'
paths_become active 2 60
io_ended lost-path 60
E
}
