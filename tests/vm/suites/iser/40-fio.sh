# fio writes, reads back and compares checksums, at both path MTUs.
# shellcheck shell=bash

setup() { attach_host; }
teardown() {
  detach_host
  guest <<< 'path_mtu 9000'
}

test_random_4k() {
  guest << 'G'
has_path_mtu rxe0 4096
verified random-4k "$(disk 1)" --rw=randwrite --bs=4k --iodepth=32 --size=12m
G
}

test_random_512() { guest <<< 'verified random-512 "$(disk 0)" --rw=randwrite --bs=512 --iodepth=32 --size=2m'; }

test_sequential_1m() { guest <<< 'verified large "$(disk 0)" --rw=write --bs=1m --iodepth=8 --size=96m'; }

# Immediate data end at 8 KiB; what is longer is read from behind them.
test_odd_sizes() {
  guest <<< 'verified odd "$(disk 0)" --rw=randwrite --bsrange=512-300k --blockalign=512 --iodepth=16 --size=24m'
}

test_without_immediate_data() {
  guest << 'G'
detach "$IQN"
attach "$IQN" "$PEER_A" node.session.iscsi.ImmediateData=No node.session.iscsi.InitialR2T=Yes
verified solicited "$(disk 0)" --rw=randwrite --bsrange=512-64k --blockalign=512 --iodepth=16 --size=8m
detach "$IQN"
attach "$IQN" "$PEER_A" node.session.iscsi.ImmediateData=No
verified unsolicited "$(disk 0)" --rw=randwrite --bsrange=512-64k --blockalign=512 --iodepth=16 --size=8m
detach "$IQN"
attach "$IQN" "$PEER_A" node.session.iscsi.ImmediateData=Yes node.session.iscsi.InitialR2T=No
G
}

test_path_mtu_1024() {
  guest << 'G'
detach "$IQN"
path_mtu 1500
eventually 5 has_path_mtu rxe0 1024
attach "$IQN" "$PEER_A"
verified small-mtu-4k "$(disk 1)" --rw=randwrite --bs=4k --iodepth=32 --size=8m
verified small-mtu-1m "$(disk 0)" --rw=write --bs=1m --iodepth=4 --size=48m
G
}
