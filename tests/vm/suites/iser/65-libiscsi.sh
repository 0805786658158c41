# libiscsi's initiator over rdma_rxe's user-space verbs, and parts of its conformance suite that move data.
# shellcheck shell=bash

setup() {
  guest <<< 'iscsi-inq "iser://$PEER_A:$PORT/$IQN/0" > /tmp/inquiry 2>&1' || skip "libiscsi comes without iSER"
}

test_inquiry() { guest <<< 'cat /tmp/inquiry; grep -i ramport /tmp/inquiry'; }

test_conformance_of_reads_and_writes() {
  guest << 'G'
for family in Read10 Read16 Write10 Write16 CompareAndWrite Unmap WriteSame10; do
  timeout 60 iscsi-test-cu -d -t "ALL.$family.*" "iser://$PEER_A:$PORT/$IQN/0" > "/tmp/$family" 2>&1 || {
    tail -n 30 "/tmp/$family"
    exit 1
  }
  grep -E 'tests|asserts' "/tmp/$family"
done
G
}
