# What Linux's ALUA device handler knows of the paths to three nodes.
# shellcheck shell=bash

setup() {
  needs_etcd
  needs_modules drivers/scsi/device_handler
  guest A="$(node_address 1)" B="$(node_address 2)" C="$(node_address 3)" << 'E'
for address in "$A" "$B" "$C"; do attach "$IQN" "$address"; done
E
}
teardown() { guest <<< 'detach "$IQN"'; }

test_the_primary_is_the_optimized_path_and_its_successor_after_it() {
  local killed
  find_roles 1
  killed=$PRIMARY
  guest PRIMARY="$(node_address "$PRIMARY")" SECONDARY="$(node_address "$SECONDARY")" OTHER="$(node_address "$OTHER")" << 'E'
access_becomes "$PRIMARY" active/optimized 20
access_becomes "$SECONDARY" active/non-optimized 20
access_becomes "$OTHER" active/non-optimized 20
# One disk by three target port groups.
for address in "$PRIMARY" "$SECONDARY" "$OTHER"; do
  path=$(device "$(session "$IQN" "$address")" 0)
  cat "/sys/block/${path#/dev/}/device/wwid" >> /tmp/identifiers
  sg_rtpg --decode "$path" | tee -a /tmp/groups
done
same "$(sort -u /tmp/identifiers | wc -l)" 1 identifiers
same "$(grep -io 'target port group id : 0x[0-9a-f]*' /tmp/groups | sort -u | wc -l)" 3 "target port groups"
E
  node_kill "$killed"
  guest PRIMARY="$(node_address "$SECONDARY")" OTHER="$(node_address "$OTHER")" << 'E'
access_becomes "$PRIMARY" active/optimized 30
access_becomes "$OTHER" active/non-optimized 20
verified failover "$(device "$(session "$IQN" "$PRIMARY")" 0)" --rw=randwrite --bs=4k --iodepth=8 --size=1m
E
  node_start "$killed"
  copies_become "$SECONDARY" 2
  guest KILLED="$(node_address "$killed")" << 'E'
eventually 60 logged_in "$(session "$IQN" "$KILLED")"
access_becomes "$KILLED" active/non-optimized 40
E
}
