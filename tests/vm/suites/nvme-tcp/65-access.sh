# Who may use a target.
# shellcheck shell=bash

CLOSED=$NQN-closed

setup() {
  peer_volume_create closed 64 4096
  peer_target_create "$CLOSED" "$HOST_2"
  peer_namespace_add "$CLOSED" 1 closed
}

test_a_host_that_is_not_allowed_is_refused() {
  guest CLOSED="$CLOSED" << 'E'
refused 'could not add new controller' nvme connect -t tcp -a "$PEER_A" -s "$PORT" -n "$CLOSED"
dmesg | tail -n 5
dmesg | grep -F "$CLOSED" | grep -q 'is not allowed'
not_connected "$CLOSED"
nvme discover -t tcp -a "$PEER_A" -s "$PORT" > /tmp/log
not grep -F "$CLOSED" /tmp/log
E
}

test_an_allowed_host_sees_and_uses_it() {
  guest CLOSED="$CLOSED" << 'E'
host=(--hostnqn="$HOST_2" --hostid="${HOST_2##*uuid:}")
nvme discover -t tcp -a "$PEER_A" -s "$PORT" "${host[@]}" > /tmp/log
grep -F "$CLOSED" /tmp/log
nvme connect -t tcp -a "$PEER_A" -s "$PORT" -n "$CLOSED" "${host[@]}"
eventually 10 device 1 "$CLOSED"
dd if=/dev/zero of="$(device 1 "$CLOSED")" bs=4k count=4 oflag=direct status=none
disconnect "$CLOSED"
E
}

test_a_host_allowed_later_connects() {
  peer_target_allow "$CLOSED" "$HOST_1"
  guest CLOSED="$CLOSED" << 'E'
nvme connect -t tcp -a "$PEER_A" -s "$PORT" -n "$CLOSED"
eventually 10 device 1 "$CLOSED"
disconnect "$CLOSED"
E
}

test_an_unknown_target_is_refused() {
  guest << 'E'
refused 'could not add new controller' nvme connect -t tcp -a "$PEER_A" -s "$PORT" -n "$NQN-nowhere"
dmesg | grep -F "Connect Invalid Data Parameter, subsysnqn \"$NQN-nowhere\""
E
}
