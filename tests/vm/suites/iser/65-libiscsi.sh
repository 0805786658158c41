# libiscsi's tools over the user-space verbs of rdma_rxe. Its conformance suite ends itself over iSER, by an invalid pointer to
# free(): libiscsi (1.19.0 to 1.20.3) puts read buffers of other lengths among the small ones that it keeps for later, and writes
# beyond them then; its commit 2934d64 fixes that. With LIBISCSI_CACHE_ALLOCATIONS=0 the suite gets to its first write: before
# 1.20.0 (commit dfbc669) libiscsi announces immediate data over iSER (DataSegmentLength) and sends none, so the message is
# shorter than it says, the connection is ended, and the suite does not connect again.
# shellcheck shell=bash

setup() {
  guest <<< 'iscsi-inq "iser://$PEER_A:$PORT/$IQN/0" > /tmp/inquiry 2>&1' || skip "libiscsi comes without iSER"
}

test_inquiry_and_capacity() {
  guest << 'G'
cat /tmp/inquiry
grep -i ramport /tmp/inquiry
iscsi-readcapacity16 "iser://$PEER_A:$PORT/$IQN/1" | tee /tmp/capacity
grep -E "length:4096|Block size *: *4096|4096" /tmp/capacity
G
}

test_reads() {
  guest << 'G'
timeout 200 iscsi-perf -t 4 -b 8 -m 8 "iser://$PEER_A:$PORT/$IQN/0" 2>&1 | tr '\r' '\n' | tail -n 5 | tee /tmp/perf
grep -E 'iops|IOPS' /tmp/perf
G
}
