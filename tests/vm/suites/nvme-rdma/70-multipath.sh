# NVMe/TCP and NVMe/RDMA as two paths of one disk, each cut in turn; and a target moved from one to the other.
# shellcheck shell=bash

FAST_LOSS="--keep-alive-tmo=5 --reconnect-delay=1 --ctrl-loss-tmo=600"

setup() {
  daemon portal create "nvme+tcp://$PEER_B:$PORT"
  guest FAST_LOSS="$FAST_LOSS" << 'E'
# shellcheck disable=SC2086
{
  connect "$PEER_A" $FAST_LOSS
  TRANSPORT=tcp connect "$PEER_B" $FAST_LOSS
}
for policy in /sys/class/nvme-subsystem/*/iopolicy; do echo round-robin > "$policy"; done
E
}
teardown() {
  net_link "$(guest_tap host 0)" up
  net_link "$(guest_tap host 1)" up
  guest <<< 'not_connected || disconnect'
  daemon portal remove "nvme+tcp://$PEER_B:$PORT" --force
}

test_tcp_and_rdma_are_paths_of_one_disk() {
  guest << 'E'
nvme list-subsys
same "$(for controller in $(controllers); do transport_of "$controller"; done | sort | xargs)" "rdma tcp" transports
same "$(nvme list | grep -c '^/dev/nvme')" 2 "namespaces listed"
verified both-paths "$(device 1)" --rw=randwrite --bs=4k --iodepth=16 --size=8m
for controller in $(controllers); do
  echo "$controller, $(transport_of "$controller"), served $(served "$controller") writes"
  serves_more "$controller" 300
done
E
}

test_io_goes_on_while_each_path_is_cut_in_turn() {
  guest <<< 'io_started cut "$(device 1)" verified_for_a_while cut "$(device 1)"'
  path_lost_and_found 0 "$PEER_A" "$PEER_B"
  path_lost_and_found 1 "$PEER_B" "$PEER_A"
  guest <<< 'io_ended cut 60'
}

# path_lost_and_found WIRE ADDRESS_LOST ADDRESS_LEFT
path_lost_and_found() {
  net_link "$(guest_tap host "$1")" down
  guest LOST="$2" LEFT="$3" << 'E'
lost() { ! live "$(controllers "$NQN" "$LOST")"; }
eventually 40 lost
eventually 20 live "$(controllers "$NQN" "$LEFT")"
dd if="$(device 1)" of=/dev/null bs=4k count=4 iflag=direct status=none
E
  net_link "$(guest_tap host "$1")" up
  guest LOST="$2" << 'E'
back() { live "$(controllers "$NQN" "$LOST")"; }
eventually 60 back
E
}

test_a_target_moves_to_tcp_and_back_under_io() {
  guest <<< 'io_started move "$(device 1)" verified_for_a_while move "$(device 1)"'
  daemon portal set "nvme+tcp://$PEER_A:$PORT" --rdma off --force
  guest << 'E'
lost() { ! live "$(controllers "$NQN" "$PEER_A")"; }
eventually 40 lost
E
  daemon portal create "nvme+tcp://$PEER_A:$PORT"
  daemon portal set "nvme+tcp://$PEER_A:$PORT" --rdma on
  guest << 'E'
back() { live "$(controllers "$NQN" "$PEER_A")"; }
eventually 60 back
io_ended move 60
E
  daemon portal remove "nvme+tcp://$PEER_A:$PORT" --force
}

# Its only path goes to TCP and back at one address; no I/O fails, and nothing that was acknowledged is lost.
test_a_host_moves_to_tcp_at_the_same_portal_and_back_under_io() {
  daemon portal create "nvme+tcp://$PEER_A:$PORT"
  guest << 'E'
nvme disconnect -d "$(controllers "$NQN" "$PEER_B")"
same "$(transport_of "$(controllers)")" rdma "transport of the only path"
io_started host-moves "$(device 1)" verified_for_a_while host-moves "$(device 1)"
controllers > /tmp/by-rdma
E
  daemon portal set "nvme+tcp://$PEER_A:$PORT" --rdma off --force
  guest FAST_LOSS="$FAST_LOSS" << 'E'
by_rdma=$(cat /tmp/by-rdma)
lost() { ! live "$by_rdma"; }
eventually 40 lost
# shellcheck disable=SC2086
TRANSPORT=tcp connect "$PEER_A" $FAST_LOSS
by_tcp=$(controllers | grep -vx "$by_rdma")
same "$(transport_of "$by_tcp")" tcp "transport of the new path"
eventually 20 serves_more "$by_tcp" "$(served "$by_tcp")"
lost
E
  daemon portal set "nvme+tcp://$PEER_A:$PORT" --rdma on
  guest << 'E'
by_rdma=$(cat /tmp/by-rdma)
eventually 60 live "$by_rdma"
nvme disconnect -d "$(controllers | grep -vx "$by_rdma")"
same "$(controllers)" "$by_rdma" controllers
eventually 20 serves_more "$by_rdma" "$(served "$by_rdma")"
io_ended host-moves 60
E
  daemon portal remove "nvme+tcp://$PEER_A:$PORT" --force
}
