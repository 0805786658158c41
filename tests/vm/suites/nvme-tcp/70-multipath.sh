# Two portals as two paths of Linux's native multipath.
# shellcheck shell=bash

FAST_LOSS="--keep-alive-tmo=5 --reconnect-delay=1 --ctrl-loss-tmo=600"

setup() {
  guest FAST_LOSS="$FAST_LOSS" << 'E'
# shellcheck disable=SC2086
{
  connect "$PEER_A" $FAST_LOSS
  connect "$PEER_B" $FAST_LOSS
}
for policy in /sys/class/nvme-subsystem/*/iopolicy; do echo round-robin > "$policy"; done
E
}
teardown() {
  net_link "$(guest_tap host 1)" up
  disconnect_host
}

test_both_portals_are_paths_of_one_namespace() {
  guest << 'E'
nvme list-subsys
same "$(controllers | wc -l)" 2 controllers
same "$(nvme list | grep -c '^/dev/nvme')" 2 "namespaces listed"
# shellcheck disable=SC2046
live $(controllers)
grep -H . /sys/class/nvme-subsystem/nvme-subsys*/iopolicy /sys/class/nvme/nvme*/nvme*c*n*/ana_state
verified both-paths "$(device 1)" --rw=randwrite --bs=4k --iodepth=16 --size=8m
for controller in $(controllers); do
  served=$(cat "/sys/class/nvme/$controller/"nvme*n*/stat | awk '{ sum += $5 } END { print sum }')
  echo "$controller served $served writes"
  [ "$served" -gt 500 ]
done
E
}

test_io_goes_on_while_a_wire_is_cut() {
  path_lost_and_found "net_link $(guest_tap host 1) down" "net_link $(guest_tap host 1) up"
}

test_io_goes_on_while_a_portal_is_away() {
  path_lost_and_found "peer_portal_remove $PEER_B $PORT" "peer_portal_add $PEER_B $PORT"
}

# path_lost_and_found LOSE FIND: verified I/O all the while.
path_lost_and_found() {
  guest <<< 'io_started lost-path "$(device 1)" verified_for_a_while lost-path "$(device 1)"'
  $1
  guest << 'E'
path_b_lost() { ! live "$(controllers "$NQN" "$PEER_B")"; }
eventually 40 path_b_lost
eventually 20 live "$(controllers "$NQN" "$PEER_A")"
dd if="$(device 1)" of=/dev/null bs=4k count=4 iflag=direct status=none
E
  $2
  guest << 'E'
path_b_back() { live "$(controllers "$NQN" "$PEER_B")"; }
eventually 60 path_b_back
io_ended lost-path 60
E
}
