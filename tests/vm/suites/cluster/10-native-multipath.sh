# Three nodes as paths of Linux's native multipath, one of which is killed.
# shellcheck shell=bash

setup() {
  needs_etcd
  guest A="$(node_address 1)" B="$(node_address 2)" C="$(node_address 3)" << 'E'
# shellcheck disable=SC2086
for address in "$A" "$B" "$C"; do connect "$address" $FAST_LOSS; done
nvme list-subsys
E
}
teardown() { guest <<< disconnect; }

test_the_primary_is_the_optimized_path_and_takes_the_writes() {
  find_roles 1
  guest PRIMARY="$(node_address "$PRIMARY")" SECONDARY="$(node_address "$SECONDARY")" OTHER="$(node_address "$OTHER")" << 'E'
# One subsystem, and one disk.
same "$(controllers | wc -l)" 3 controllers
same "$(nvme list | grep -c '^/dev/nvme')" 1 "namespaces listed"
same "$(cat /sys/class/nvme/nvme*/serial | uniq | wc -l)" 1 "serial numbers"
ana_becomes "$PRIMARY" optimized 10
ana_becomes "$SECONDARY" non-optimized 10
ana_becomes "$OTHER" non-optimized 10
before=$(path_writes "$SECONDARY")-$(path_writes "$OTHER")
verified optimized "$(device 1)" --rw=randwrite --bs=4k --iodepth=16 --size=4m
[ "$(path_writes "$PRIMARY")" -ge 1000 ]
same "$(path_writes "$SECONDARY")-$(path_writes "$OTHER")" "$before" "writes on other paths"
E
}

test_io_goes_on_while_the_primary_is_killed_and_returns() {
  local killed
  find_roles 1
  killed=$PRIMARY
  guest <<< 'io_started failover "$(device 1)" verified_for_a_while failover "$(device 1)"'
  node_kill "$killed"
  guest PRIMARY="$(node_address "$SECONDARY")" OTHER="$(node_address "$OTHER")" << 'E'
ana_becomes "$PRIMARY" optimized 20
same "$(ana_state "$OTHER")" non-optimized "state of the node without a copy"
dd if="$(device 1)" of=/dev/null bs=4k count=4 iflag=direct status=none
E
  node_start "$killed"
  guest KILLED="$(node_address "$killed")" PRIMARY="$(node_address "$SECONDARY")" << 'E'
eventually 40 is_live "$KILLED"
ana_becomes "$KILLED" non-optimized 40
io_ended failover 60
same "$(ana_state "$PRIMARY")" optimized "state of the new primary"
dmesg > /tmp/dmesg
not grep -E 'I/O error' /tmp/dmesg
E
  copies_become "$SECONDARY" 2
}
