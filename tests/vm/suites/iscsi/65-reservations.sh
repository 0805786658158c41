# Persistent reservations between two initiator names.
# shellcheck shell=bash

SHARED=$IQN-shared

setup() {
  peer_volume_create shared 64 512
  peer_target_create "$SHARED" any
  peer_namespace_add "$SHARED" 0 shared
  guest SHARED="$SHARED" << 'E'
attach "$SHARED" "$PEER_A"
IFACE=second attach "$SHARED" "$PEER_A"
eventually 15 device "$(session "$SHARED" "$PEER_A" second)" 0
E
}
teardown() {
  guest SHARED="$SHARED" <<< 'detach "$SHARED"'
  peer_target_remove "$SHARED"
}

# A guest script with both initiators' devices at hand.
two_hosts() {
  {
    cat << 'E'
one=$(device "$(session "$SHARED" "$PEER_A" default)" 0)
two=$(device "$(session "$SHARED" "$PEER_A" second)" 0)
out() { sg_persist --no-inquiry --out "--$2" "${@:3}" "$1"; }
report() {
  sg_persist --no-inquiry --in --read-keys "$one"
  sg_persist --no-inquiry --in --read-reservation "$one"
} > /tmp/report
told() { report && cat /tmp/report && grep -qF "$1" /tmp/report; }
# status EXPECTED COMMAND...: the exit status, by sg3_utils(8).
status() {
  local expected=$1 got=0
  shift
  "$@" > /tmp/out 2>&1 || got=$?
  cat /tmp/out
  same "$got" "$expected" "status of $*"
}
conflict() { status 24 "$@"; }
attention() { status 6 sg_turs "$1"; }
write() { dd if=/dev/zero of="$1" bs=4k count=1 oflag=direct status=none; }
read_block() { dd if="$1" of=/dev/null bs=4k count=1 iflag=direct status=none; }
barred() { refused 'invalid exchange|input/output' "$@"; }
E
    cat
  } | guest SHARED="$SHARED"
}

test_register_and_report() {
  two_hosts << 'E'
out "$one" register --param-sark=0x11
out "$two" register --param-sark=0x22
told 0x11
told 0x22
told "there is NO reservation held"
conflict out "$one" register --param-rk=0x99 --param-sark=0x12
E
}

test_write_exclusive_bars_the_other() {
  two_hosts << 'E'
out "$one" reserve --param-rk=0x11 --prout-type=1
told "type: Write Exclusive"
write "$one"
barred write "$two"
read_block "$two"
conflict out "$two" reserve --param-rk=0x22 --prout-type=1
conflict out "$two" release --param-rk=0x99 --prout-type=1
E
}

test_release_lets_the_other_in() {
  two_hosts << 'E'
out "$one" release --param-rk=0x11 --prout-type=1
write "$two"
out "$two" reserve --param-rk=0x22 --prout-type=3
told "type: Exclusive Access"
barred write "$one"
barred read_block "$one"
E
}

test_preempt_takes_the_reservation_over() {
  two_hosts << 'E'
out "$one" preempt --param-rk=0x11 --param-sark=0x22 --prout-type=3
attention "$two"
told "Key=0x11"
not grep -F 0x22 /tmp/report
write "$one"
barred write "$two"
conflict out "$two" release --param-rk=0x22 --prout-type=3
E
}

test_registrants_only_admits_those_who_register() {
  two_hosts << 'E'
out "$one" release --param-rk=0x11 --prout-type=3
out "$one" reserve --param-rk=0x11 --prout-type=5
barred write "$two"
out "$two" register --param-sark=0x22
write "$two"
E
}

test_clear_ends_all() {
  two_hosts << 'E'
out "$one" clear --param-rk=0x11
attention "$two"
told "there are NO registered reservation keys"
write "$one"
write "$two"
E
}

test_reservation_outlives_the_daemon_where_asked() {
  two_hosts << 'E'
out "$one" register --param-sark=0x11 --param-aptpl
out "$one" reserve --param-rk=0x11 --prout-type=3
E
  peer_crash
  two_hosts << 'E'
for disk in "$one" "$two"; do eventually 40 sg_turs "$disk"; done
told Key=0x11
grep -F "type: Exclusive Access" /tmp/report
write "$one"
barred write "$two"
out "$one" clear --param-rk=0x11
write "$two"
E
}
