# The peer ends without warning and comes back: the session takes up where it was.
# shellcheck shell=bash

setup() { attach_host; }
teardown() { detach_host; }

# RAM contents are lost, definitions are not.
test_io_goes_on_after_a_crash() {
  guest << 'G'
patient
dd if=/dev/urandom of="$(disk 1)" bs=1M count=4 oflag=direct status=none
io_started through "$(disk 0)" written_for_a_while through "$(disk 0)"
G
  peer_crash
  guest << 'G'
eventually 90 is_running
io_ended through 60
dd if="$(disk 1)" bs=1M count=4 iflag=direct status=none | cmp -n 4194304 - /dev/zero
verified after "$(disk 0)" --rw=randwrite --bs=4k --iodepth=16 --size=4m
G
}

test_io_goes_on_while_the_portal_is_away() {
  guest << 'G'
patient
io_started away "$(disk 0)" verified_for_a_while away "$(disk 0)"
G
  peer_portal_remove "$PEER_A" "$PORT"
  peer_portal_add "$PEER_A" "$PORT"
  guest << 'G'
eventually 90 is_running
io_ended away 60
G
}

test_a_reset_under_io_fails_nothing() {
  guest << 'G'
io_started reset "$(disk 0)" verified_for_a_while reset "$(disk 0)"
sg_reset --device "$(disk 0)"
io_ended reset 60
G
}
