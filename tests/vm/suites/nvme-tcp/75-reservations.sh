# Reservations between two hosts. Both are in one guest, hence commands go through
# each host's controller device, which needs a target with a single namespace.
# shellcheck shell=bash

SHARED=$NQN-shared

setup() {
  peer_can reservations || skip "this peer has no reservations"
  peer_volume_create shared 64 512
  peer_target_create "$SHARED" any
  peer_namespace_add "$SHARED" 1 shared
  guest SHARED="$SHARED" << 'E'
nvme connect -t tcp -a "$PEER_A" -s "$PORT" -n "$SHARED"
eventually 10 device 1 "$SHARED"
controllers "$SHARED" > /tmp/host-1
# As nvme-cli would, which however takes the second host for the first.
echo "transport=tcp,traddr=$PEER_A,trsvcid=$PORT,nqn=$SHARED,hostnqn=$HOST_2,hostid=${HOST_2##*uuid:}" > /dev/nvme-fabrics
both() { [ "$(controllers "$SHARED" | wc -l)" = 2 ]; }
eventually 10 both
controllers "$SHARED" | grep -vxF "$(cat /tmp/host-1)" > /tmp/host-2
cat /tmp/host-1 /tmp/host-2
E
}
teardown() { guest SHARED="$SHARED" <<< 'disconnect "$SHARED"'; }

# A guest script with the two hosts at hand.
two_hosts() {
  {
    cat << 'E'
one=/dev/$(cat /tmp/host-1) two=/dev/$(cat /tmp/host-2)
reservation() { nvme "resv-$1" "$2" --namespace-id=1 "${@:3}"; }
report() { nvme resv-report "$one" --namespace-id=1 --eds --output-format=json | tee /tmp/report.json; }
conflict() { refused 'reservation conflict|0x[0-9a-f]*83\b' "$@"; }
write() { nvme io-passthru "$1" --opcode=1 --namespace-id=1 --cdw10=8 --cdw12=0 --data-len=512 --write --input-file=/tmp/block; }
read_block() { nvme io-passthru "$1" --opcode=2 --namespace-id=1 --cdw10=8 --cdw12=0 --data-len=512 --read --raw-binary > /tmp/read; }
head -c 512 /dev/urandom > /tmp/block
E
    cat
  } | guest
}

test_register_and_report() {
  two_hosts << 'E'
reservation register "$one" --nrkey=0x11 --rrega=0
reservation register "$two" --nrkey=0x22 --rrega=0
report
jq -e '.regctl == 2 and .rtype == 0 and ([.regctlext[].rkey] | sort == [17, 34]) and all(.regctlext[]; .cntlid == 65535)' /tmp/report.json
conflict reservation register "$one" --crkey=0x99 --nrkey=0x12 --rrega=2
reservation register "$one" --crkey=0x11 --nrkey=0x12 --rrega=2
reservation register "$one" --crkey=0x12 --nrkey=0x11 --rrega=2
E
}

test_write_exclusive_bars_the_other_host() {
  two_hosts << 'E'
reservation acquire "$one" --crkey=0x11 --rtype=1 --racqa=0
report
jq -e '.rtype == 1' /tmp/report.json
write "$one"
conflict write "$two"
read_block "$two"
cmp /tmp/block /tmp/read
conflict reservation acquire "$two" --crkey=0x22 --rtype=1 --racqa=0
E
}

test_release_lets_the_other_host_in() {
  two_hosts << 'E'
conflict reservation release "$one" --crkey=0x99 --rtype=1 --rrela=0
reservation release "$one" --crkey=0x11 --rtype=1 --rrela=0
write "$two"
reservation acquire "$two" --crkey=0x22 --rtype=2 --racqa=0
conflict write "$one"
conflict read_block "$one"
E
}

test_preempt_takes_the_reservation_over() {
  two_hosts << 'E'
reservation acquire "$one" --crkey=0x11 --prkey=0x22 --rtype=2 --racqa=1
report
jq -e '.rtype == 2 and .regctl == 1' /tmp/report.json
write "$one"
conflict write "$two"
conflict reservation release "$two" --crkey=0x22 --rtype=2 --rrela=0
E
}

test_registrants_only_admits_those_who_register() {
  two_hosts << 'E'
reservation release "$one" --crkey=0x11 --rtype=2 --rrela=0
reservation acquire "$one" --crkey=0x11 --rtype=3 --racqa=0
conflict write "$two"
reservation register "$two" --nrkey=0x22 --rrega=0
write "$two"
E
}

test_clear_ends_all() {
  two_hosts << 'E'
reservation release "$one" --crkey=0x11 --rtype=0 --rrela=1
report
jq -e '.rtype == 0 and .regctl == 0' /tmp/report.json
write "$one"
write "$two"
E
}

test_kernel_uses_reservations_through_multipath() {
  guest SHARED="$SHARED" << 'E'
disk=$(device 1 "$SHARED")
dd if=/dev/zero of="$disk" bs=4k count=4 oflag=direct status=none
E
}
