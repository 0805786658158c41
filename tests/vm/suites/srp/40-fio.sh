# fio writes, reads back and compares checksums, with each way in which ib_srp names memory.
# shellcheck shell=bash

setup() { attach_host; }
teardown() { guest <<< 'detach; rmmod ib_srp; modprobe ib_srp'; }

# Writes of up to 8 KiB are immediate data.
test_random_4k() { guest <<< 'verified random-4k "$(disk 1)" --rw=randwrite --bs=4k --iodepth=32 --size=3m'; }

test_odd_sizes() {
  guest <<< 'verified odd "$(disk 0)" --rw=randwrite --bsrange=512-300k --blockalign=512 --iodepth=16 --size=6m'
}

test_sequential_1m() { guest <<< 'verified large "$(disk 0)" --rw=write --bs=1m --iodepth=8 --size=24m'; }

test_without_immediate_data() {
  guest CONNECT="$(connect_lines "$IQN")" << 'G'
detach
rmmod ib_srp
modprobe ib_srp use_imm_data=N
attach
verified fetched "$(disk 0)" --rw=randwrite --bsrange=512-64k --blockalign=512 --iodepth=16 --size=4m
G
}

# Memory is not registered, so each page is a descriptor; messages hold two of them, and the target reads the rest of the table.
test_tables_that_are_fetched() {
  guest CONNECT="$(connect_lines "$IQN")" << 'G'
detach
rmmod ib_srp
modprobe ib_srp never_register=Y use_imm_data=N indirect_sg_entries=128 allow_ext_sg=Y cmd_sg_entries=2
attach
same "$(cat "/sys/class/scsi_host/$(hosts)/cmd_sg_entries")" 2 "descriptors in a message"
same "$(cat "/sys/class/scsi_host/$(hosts)/allow_ext_sg")" true "tables in memory"
verified tables "$(disk 0)" --rw=randwrite --bsrange=4k-256k --blockalign=4k --iodepth=8 --size=8m
G
}
