# Header and data digests, which this kernel computes and checks on its side.
# shellcheck shell=bash

teardown() { guest <<< 'nvme disconnect -n "$NQN"' > /dev/null; }

with_digests() {
  guest NAME="$1" OPTIONS="$2" << 'E'
# shellcheck disable=SC2086
connect "$PEER_A" $OPTIONS
verified "$NAME-small" "$(device 1)" --rw=randwrite --bsrange=512-16k --blockalign=512 --iodepth=16 --size=4m
verified "$NAME-large" "$(device 1)" --rw=write --bs=256k --iodepth=4 --size=8m
blkdiscard "$(device 1)"
disconnect
not grep -E 'digest' <(dmesg)
E
}

test_header_digest() { with_digests header --hdr-digest; }
test_data_digest() { with_digests data --data-digest; }
test_both_digests() { with_digests both "--hdr-digest --data-digest"; }
