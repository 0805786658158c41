# The peer ends without warning and comes back. What its RAM volumes held is lost by
# design; its definitions are not, so the host takes up where it was.
# shellcheck shell=bash

setup() { guest <<< 'connect "$PEER_A" --keep-alive-tmo=5 --reconnect-delay=1 --ctrl-loss-tmo=600'; }
teardown() { disconnect_host; }

test_io_goes_on_after_a_crash() {
  guest << 'E'
dd if=/dev/urandom of="$(device 2)" bs=1M count=4 oflag=direct status=none
io_started through "$(device 1)" \
  fio --name=through --filename="$(device 1)" --ioengine=libaio --direct=1 --rw=randwrite --bs=4k --iodepth=16 \
  --size=64m --time_based --runtime=3
cat /sys/block/"$(basename "$(device 1)")"/wwid > /tmp/wwid
E
  peer_crash
  guest << 'E'
# shellcheck disable=SC2046
back() { live $(controllers) && device 1 && device 2; }
eventually 60 back
io_ended through 60
same "$(cat /sys/block/"$(basename "$(device 1)")"/wwid)" "$(cat /tmp/wwid)" "identifier of the namespace"
echo 3 > /proc/sys/vm/drop_caches
dd if="$(device 2)" bs=1M count=4 iflag=direct status=none | cmp -n 4194304 - /dev/zero
verified after "$(device 1)" --rw=randwrite --bs=4k --iodepth=16 --size=4m
E
}

test_targets_and_hosts_are_still_defined() {
  guest << 'E'
nvme discover -t tcp -a "$PEER_A" -s "$PORT" | grep -F "$NQN"
has_size_mib "$(device 1)" "$DISK_MIB"
has_size_mib "$(device 2)" "$DISK_4K_MIB"
E
}
