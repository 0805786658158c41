# The peer ends without warning and comes back. What its RAM volumes held is lost by
# design; its definitions are not, so the session takes up where it was.
# shellcheck shell=bash

setup() { attach_host; }
teardown() { detach_host; }

test_io_goes_on_after_a_crash() { io_goes_on_after_a_crash; }

test_targets_are_still_defined() {
  guest << 'E'
iscsiadm -m discovery -t sendtargets -p "$PEER_A:$PORT" -o nonpersistent | grep -F "$IQN"
iscsiadm -m node -T "$IQN" --rescan
has_size_mib "$(disk 0)" "$DISK_MIB"
has_size_mib "$(disk 1)" "$DISK_4K_MIB"
E
}

test_logout_under_io_ends_cleanly() { logout_under_io; }
