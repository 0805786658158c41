# A portal by an adapter: ramport in the guest on rdma_rxe, and Linux's initiator beside it on the same device, since rdma_rxe of
# Linux 6.12 works in the first network namespace alone. `--peer ramport-hw` has a guest for each.
# shellcheck shell=bash

HERE=iser://10.77.0.11:3270

setup() {
  guest HERE="$HERE" << 'G'
ramport_up --memory 384M --cores 1 --listen "$HERE?rdma=hw"
ramport_here volume create here --size 64M
ramport_here target create "$IQN-here" --volume here=0 --allow-any-host
G
}
teardown() {
  here << 'G'
not_attached "$IQN" || detach "$IQN"
ramport_down
G
}

# The script on stdin, in the guest, with that daemon as the target.
here() { guest IQN="$IQN-here" PORT=3270 ADDRESS=10.77.0.11 HERE="$HERE"; }

test_an_adapter_serves_linux_on_the_same_device() {
  here << 'G'
same "$(portal_field "$HERE" provider)" hw provider
iscsiadm -m discovery -t sendtargets -p "$ADDRESS:$PORT" -I iser | grep -xF "$ADDRESS:$PORT,1 $IQN"
iscsiadm -m node -o delete
attach "$IQN" "$ADDRESS"
by_iser "$(session "$IQN")"
verified by-adapter "$(disk 0)" --rw=randwrite --bs=4k --iodepth=16 --size=4m
verified by-adapter-1m "$(disk 0)" --rw=write --bs=1m --iodepth=4 --size=8m
mkfs.ext4 -qF "$(disk 0)"
e2fsck -fn "$(disk 0)"
detach "$IQN"
G
}

test_an_adapter_is_chosen_where_there_is_one() {
  guest CHOOSES=iser://10.77.0.11:3271 << 'G'
ramport_here portal create "$CHOOSES"
same "$(portal_field "$CHOOSES" state) $(portal_field "$CHOOSES" provider)" "open hw" "state and provider"
ramport_here portal remove "$CHOOSES" --force
G
}

# The others are on the wire, this one on the adapter itself.
test_an_initiator_beside_hostile_ones_notices_nothing() {
  here << 'G'
register_not
attach "$IQN" "$ADDRESS"
dmesg --clear
io_started beside "$(disk 0)" timed_for_a_while beside "$(disk 0)"
G
  harm_from_the_wire hostile_initiators 10.77.0.11:3270 "$IQN-here"
  here << 'G'
io_ended beside 60
not_delayed beside "$(disk 0)"
nothing_was_lost
detach "$IQN"
register_memory
same "$(portal_field "$HERE" state)" open state
G
}

# The initiator loses its own device as well; the session is taken up again where it was.
test_an_adapter_is_taken_away_under_io_and_comes_back() {
  here << 'G'
attach "$IQN" "$ADDRESS"
io_started away "$(disk 0)" verified_for_a_while away "$(disk 0)"
adapter_away rxe0 "$HERE"
adapter_back rxe0 eth0 "$HERE"
eventually 60 logged_in "$(session "$IQN")"
io_ended away 60
detach "$IQN"
G
}
