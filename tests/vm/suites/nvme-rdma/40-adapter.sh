# A portal by an adapter: ramport in the guest on rdma_rxe, and Linux's host beside it on the same device, since rdma_rxe of Linux
# 6.12 works in the first network namespace alone. `--peer ramport-hw` has a guest for each.
# shellcheck shell=bash

HERE=nvme+rdma://10.77.0.11:4430
BONDED=10.78.0.1

setup() {
  guest HERE="$HERE" << 'E'
ramport_up --memory 384M --cores 1 --listen "$HERE?rdma=hw"
ramport_here volume create here --size 64M
ramport_here target create "$NQN-here" --volume here --allow-any-host
E
}
teardown() {
  here << 'E'
not_connected || disconnect
ramport_down
E
}

# The script on stdin, in the guest, with that daemon as the target.
here() { guest NQN="$NQN-here" PORT=4430 ADDRESS=10.77.0.11 HERE="$HERE" BONDED="$BONDED"; }

test_an_adapter_serves_linux_on_the_same_device() {
  here << 'E'
same "$(portal_field "$HERE" provider)" hw provider
ramport_here fabric ls | tee /tmp/list
grep -E "^nvme\+rdma://10\.77\.0\.11:4430\?rdma=hw +rxe0 +hw +open" /tmp/list
nvme discover -t rdma -a "$ADDRESS" -s "$PORT" > /tmp/log
grep -E 'rdma_prtype: *roce-v2' /tmp/log
connect "$ADDRESS"
verified by-adapter "$(device 1)" --rw=randwrite --bs=4k --iodepth=16 --size=4m
verified by-adapter-1m "$(device 1)" --rw=write --bs=1m --iodepth=4 --size=8m
mkfs.ext4 -qF "$(device 1)"
e2fsck -fn "$(device 1)"
disconnect
E
}

test_an_adapter_is_chosen_where_there_is_one() {
  guest CHOOSES=nvme+rdma://10.77.0.11:4431 << 'E'
ramport_here portal create "$CHOOSES"
same "$(portal_field "$CHOOSES" state) $(portal_field "$CHOOSES" provider)" "open hw" "state and provider"
ramport_here portal remove "$CHOOSES" --force
E
}

# ramport's own host, to its target on the same adapter and to one behind the wire.
test_our_host_uses_an_adapter() {
  guest NEAR="$HERE/$NQN-here" FAR="nvme+rdma://$PEER_A:$PORT/$NQN" << 'E'
for url in "$NEAR" "$FAR"; do
  /share/ramport bench "$url?rdma=hw" --write --rw randwrite --bs 4k --iodepth 16 --size 4m --verify
  /share/ramport bench "$url?rdma=hw" --write --rw write --bs 1m --iodepth 4 --size 8m --verify
done
E
}

# The peers are on the wire, the host on the adapter itself.
test_a_host_beside_hostile_peers_notices_nothing() {
  here << 'E'
register_not
connect "$ADDRESS"
dmesg --clear
io_started beside "$(device 1)" timed_for_a_while beside "$(device 1)"
E
  harm_from_the_wire hostile_peers 10.77.0.11:4430
  here << 'E'
io_ended beside 60
not_delayed beside "$(device 1)"
nothing_was_lost
disconnect
register_memory
same "$(portal_field "$HERE" state)" open state
E
}

# The host loses its own device as well, and with it the controller.
test_an_adapter_is_taken_away_under_io_and_comes_back() {
  here << 'E'
connect "$ADDRESS"
io_started away "$(device 1)" verified_for_a_while away "$(device 1)"
adapter_away rxe0 "$HERE"
eventually 20 not_connected
eventually 20 test -s /tmp/away.status
adapter_back rxe0 eth0 "$HERE"
connect "$ADDRESS"
verified back "$(device 1)" --rw=randwrite --bs=4k --iodepth=16 --size=4m
disconnect
E
}

# ramport's own host loses the same one, and makes its connections anew.
test_our_host_goes_on_when_its_adapter_comes_back() {
  guest URL="$HERE/$NQN-here?rdma=hw" HERE="$HERE" << 'E'
is_served() { [ "$(ramport_here --json session ls | jq length)" -gt 0 ]; }
/share/ramport bench "$URL" --write --rw randwrite --bs 4k --iodepth 4 --rate-iops 300 --runtime 600 --json > /tmp/bench &
bench=$!
eventually 20 is_served
adapter_away rxe0 "$HERE"
not is_served
adapter_back rxe0 eth0 "$HERE"
eventually 20 is_served
kill -INT "$bench"
status=0
wait "$bench" || status=$?
cat /tmp/bench
same "$status" 130 "the status of an interrupted run"
jq -e '.write.ios > 0 and .errors == 0 and .failure == null' /tmp/bench
E
}

# Nobody tells of an address that is taken from one device and given to another later.
test_an_address_that_goes_to_another_adapter_is_served_there() {
  guest << 'E'
MOVES=10.77.0.99
portal=nvme+rdma://$MOVES:4440
answers() { nvme discover -t rdma -a "$MOVES" -s 4440; }
ip address add "$MOVES/32" dev eth0
ramport_here portal create "$portal?rdma=hw"
eventually 10 answers
ip address delete "$MOVES/32" dev eth0
sleep 3
ip address add "$MOVES/32" dev eth1
eventually 30 answers
same "$(portal_field "$portal" provider)" hw provider
ramport_here portal remove "$portal" --force
ip address delete "$MOVES/32" dev eth1
E
}

# As when a switch fails: a bond's address goes over to its other link, which has another MAC, and all who use it are told. Linux's
# host connects again within a second or two, so that its log is asked and not its state.
test_an_address_that_moves_to_another_link_is_served_on() {
  needs_modules bonding
  here << 'E'
portal=nvme+rdma://$BONDED:$PORT
bond_up "$BONDED"
ramport_here portal create "$portal?rdma=hw"
connect "$BONDED" --reconnect-delay=1 --ctrl-loss-tmo=600
io_started moved "$(device 1)" verified_for_a_while moved "$(device 1)"
reconnected() { grep "Successfully reconnected" <(dmesg); }
for link in bond-b bond-a; do
  bond_moves_to "$link"
  eventually 60 reconnected || {
    dmesg
    exit 1
  }
done
io_ended moved 60
same "$(portal_field "$portal" provider)" hw provider
disconnect
ramport_here portal remove "$portal" --force
bond_down
E
}
