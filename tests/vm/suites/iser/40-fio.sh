# fio writes, reads back and compares checksums, at both path MTUs.
# shellcheck shell=bash

setup() {
  peer_portal_add "[$A_V6]" "$PORT,$GROUP_A"
  attach_host
}
teardown() {
  guest <<< 'not_attached "$IQN" || detach "$IQN"; path_mtu 9000'
  peer_portal_remove "[$A_V6]" "$PORT,$GROUP_A"
}

test_random_4k() {
  guest << 'G'
has_path_mtu rxe0 4096
verified random-4k "$(disk 1)" --rw=randwrite --bs=4k --iodepth=32 --size=3m
G
}

test_random_512() { guest <<< 'verified random-512 "$(disk 0)" --rw=randwrite --bs=512 --iodepth=32 --size=2m'; }

test_sequential_1m() { guest <<< 'verified large "$(disk 0)" --rw=write --bs=1m --iodepth=8 --size=24m'; }

# Immediate data end at 8 KiB; what is longer is read from behind them.
test_odd_sizes() {
  guest <<< 'verified odd "$(disk 0)" --rw=randwrite --bsrange=512-300k --blockalign=512 --iodepth=16 --size=6m'
}

test_without_immediate_data() {
  guest << 'G'
detach "$IQN"
attach "$IQN" "$PEER_A" node.session.iscsi.ImmediateData=No node.session.iscsi.InitialR2T=Yes
verified solicited "$(disk 0)" --rw=randwrite --bsrange=512-64k --blockalign=512 --iodepth=16 --size=4m
detach "$IQN"
attach "$IQN" "$PEER_A" node.session.iscsi.ImmediateData=No
verified unsolicited "$(disk 0)" --rw=randwrite --bsrange=512-64k --blockalign=512 --iodepth=16 --size=4m
detach "$IQN"
attach "$IQN" "$PEER_A" node.session.iscsi.ImmediateData=Yes node.session.iscsi.InitialR2T=No
G
}

test_path_mtu_4096() { both_families 9000 4096; }
test_path_mtu_1024() { both_families 1500 1024; }

# both_families INTERFACE_MTU PATH_MTU: it is that of IPv4 and of IPv6.
both_families() {
  guest INTERFACE_MTU="$1" PATH_MTU="$2" << 'G'
not_attached "$IQN" || detach "$IQN"
path_mtu "$INTERFACE_MTU"
eventually 5 has_path_mtu rxe0 "$PATH_MTU"
for address in "$PEER_A" "[$A_V6]"; do
  record_and_login "$IQN" "$address"
  session=$(session "$IQN")
  by_iser "$session"
  verified "mtu-$PATH_MTU-4k" "$(eventually 15 device "$session" 1)" --rw=randwrite --bs=4k --iodepth=32 --size=2m
  verified "mtu-$PATH_MTU-1m" "$(eventually 15 device "$session" 0)" --rw=write --bs=1m --iodepth=4 --size=8m
  detach "$IQN"
done
G
}
