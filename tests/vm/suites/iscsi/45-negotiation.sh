# What else an initiator may negotiate: where data-out travel, how long they are, and digests.
# shellcheck shell=bash

teardown() { guest <<< 'not_attached "$IQN" || detach "$IQN"'; }

# negotiate KEYS SETTING...: logs in with these settings, finds the keys so, and verifies I/O.
negotiate() {
  guest KEYS="$1" SETTINGS="${*:2}" << 'E'
# shellcheck disable=SC2086
{
  attach "$IQN" "$PEER_A" $SETTINGS
  negotiated "$(session "$IQN")" $KEYS
}
verified small "$(disk 0)" --rw=randwrite --bsrange=512-16k --blockalign=512 --iodepth=16 --size=2m
verified large "$(disk 0)" --rw=write --bs=512k --iodepth=4 --size=8m
blkdiscard "$(disk 0)"
detach "$IQN"
not grep -iE 'digest error|digest failed' <(dmesg)
E
}

test_all_data_are_asked_for() {
  negotiate "ImmediateData No InitialR2T Yes MaxOutstandingR2T 4 MaxBurstLength 65536" node.session.iscsi.ImmediateData=No \
    node.session.iscsi.InitialR2T=Yes node.session.iscsi.MaxOutstandingR2T=4 node.session.iscsi.MaxBurstLength=65536
}

test_unsolicited_data_without_immediate_data() {
  negotiate "ImmediateData No InitialR2T No FirstBurstLength 131072" node.session.iscsi.ImmediateData=No \
    node.session.iscsi.FirstBurstLength=131072
}

test_short_segments() {
  negotiate "MaxRecvDataSegmentLength 4096 MaxXmitDataSegmentLength 4096" \
    node.conn[0].iscsi.MaxRecvDataSegmentLength=4096 node.conn[0].iscsi.MaxXmitDataSegmentLength=4096
}

test_header_digest() { negotiate "HeaderDigest CRC32C DataDigest None" node.conn[0].iscsi.HeaderDigest=CRC32C; }
test_data_digest() { negotiate "HeaderDigest None DataDigest CRC32C" node.conn[0].iscsi.DataDigest=CRC32C; }

test_both_digests() {
  negotiate "HeaderDigest CRC32C DataDigest CRC32C" node.conn[0].iscsi.HeaderDigest=CRC32C \
    node.conn[0].iscsi.DataDigest=CRC32C
}
