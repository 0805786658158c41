# The peer ends without warning and comes back. What its RAM volumes held is lost by
# design; its definitions are not, so the session takes up where it was.
# shellcheck shell=bash

setup() { attach_host; }
teardown() { detach_host; }

test_io_goes_on_after_a_crash() {
  guest << 'E'
dd if=/dev/urandom of="$(disk 1)" bs=1M count=4 oflag=direct status=none
io_started through "$(disk 0)" \
  fio --name=through --filename="$(disk 0)" --ioengine=libaio --direct=1 --rw=randwrite --bs=4k --iodepth=16 \
  --size=64m --time_based --runtime=3
session "$IQN" > /tmp/session
cat "/sys/block/$(basename "$(disk 0)")/device/wwid" > /tmp/wwid
E
  peer_crash
  guest << 'E'
same "$(session "$IQN")" "$(cat /tmp/session)" session
eventually 60 logged_in "$(session "$IQN")"
io_ended through 60
same "$(cat "/sys/block/$(basename "$(disk 0)")/device/wwid")" "$(cat /tmp/wwid)" "identifier of the LUN"
dd if="$(disk 1)" bs=1M count=4 iflag=direct status=none | cmp -n 4194304 - /dev/zero
verified after "$(disk 0)" --rw=randwrite --bs=4k --iodepth=16 --size=4m
E
}

test_targets_are_still_defined() {
  guest << 'E'
iscsiadm -m discovery -t sendtargets -p "$PEER_A:$PORT" -o nonpersistent | grep -F "$IQN"
iscsiadm -m node -T "$IQN" --rescan
has_size_mib "$(disk 0)" "$DISK_MIB"
has_size_mib "$(disk 1)" "$DISK_4K_MIB"
E
}

test_logout_under_io_ends_cleanly() {
  guest << 'E'
fio --name=cut --filename="$(disk 0)" --ioengine=libaio --direct=1 --rw=randrw --bs=4k --iodepth=32 --size=64m \
  --time_based --runtime=200 > /tmp/cut.out 2>&1 &
job=$!
eventually 60 is_busy "$(disk 0)"
detach "$IQN"
refused wait "$job"
attach "$IQN" "$PEER_A"
verified again "$(disk 0)" --rw=randwrite --bs=4k --iodepth=8 --size=2m
E
}
