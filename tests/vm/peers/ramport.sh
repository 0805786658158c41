# The daemon on this machine, inside the run's network namespace.
# shellcheck shell=bash disable=SC2034

PEER_A=10.77.0.1
PEER_B=10.77.1.1
DAEMON_DIR=$VM_STATE/daemon
DAEMON_START_LIMIT_S=60
# What a test may have it started with, beside its memory.
SERVE_ARGUMENTS=()

peer_start() {
  mkdir -p "$DAEMON_DIR"
  rm -rf "$DAEMON_DIR/state"
  daemon_launch
}

# It has a session of its own, so that it outlives the test that starts it.
daemon_launch() {
  "${NET_RUN[@]}" "${RUN_FIRST[@]}" "$RAMPORT" serve --lost-contents zeros --socket "$DAEMON_DIR/socket" --state "$DAEMON_DIR/state" --memory 2G \
    "${SERVE_ARGUMENTS[@]}" >> "$DAEMON_DIR/log" 2>&1 < /dev/null &
  echo $! > "$DAEMON_DIR/pid"
  session_first $!
  disown
  local start=$SECONDS
  until daemon ls > /dev/null 2>&1; do
    [ $((SECONDS - start)) -lt "$DAEMON_START_LIMIT_S" ] || return 1
    sleep 0.1
  done
}

daemon() { "$RAMPORT" --socket "$DAEMON_DIR/socket" "$@"; }
daemon_pid() { cat "$DAEMON_DIR/pid"; }

peer_stop() { [ ! -f "$DAEMON_DIR/pid" ] || kill "$(daemon_pid)" 2> /dev/null; }
peer_alive() { kill -0 "$(daemon_pid)" 2> /dev/null; }
peer_log() { tail -n 30 "$DAEMON_DIR/log"; }
peer_can() { [ "$1" != lose-adapters ]; }
peer_descriptors() { find "/proc/$(daemon_pid)/fd" -mindepth 1 | wc -l; }

peer_memory_kib() { awk '/^VmRSS/ { print $2 }' "/proc/$(daemon_pid)/status"; }
peer_charged_bytes() { daemon --json capacity | jq .used_bytes; }

peer_rdma_threads_us() {
  local task
  for task in "/proc/$(daemon_pid)"/task/*; do echo "$(< "$task/comm") $(< "$task/schedstat")"; done |
    awk '/^rdma/ { us[$1] += $2 / 1000 } END { for (name in us) printf "%s %d\n", name, us[name] }' | sort
}

peer_crash() {
  daemon_kill
  daemon_launch
}

daemon_kill() {
  kill -KILL "$(daemon_pid)" || :
  while peer_alive; do sleep 0.05; done
}

# peer_address_add ADDRESS/LENGTH: one more on the side of br0.
peer_address_add() { ip -n "$NET_NS" address add "$1" dev br0 nodad; }

# A suite's PORTAL_SCHEME says which protocol; the port of iSCSI may have ",GROUP" after it.
peer_portal_add() { daemon portal create "$PORTAL_SCHEME://$1:$2"; }
peer_portal_remove() { daemon portal remove "$PORTAL_SCHEME://$1:$2" --force; }

peer_volume_create() { daemon volume create "$1" --size "${2}MiB" --block-size "$3"; }
peer_volume_resize() { daemon volume resize "$1" --size "${2}MiB" --force; }
peer_volume_lock() { daemon volume lock "$1"; }
peer_volume_unlock() { daemon volume unlock "$1"; }
peer_volume_used_bytes() { daemon --json volume show "$1" | sed -n 's/.*"used_bytes": *\([0-9]*\).*/\1/p'; }

peer_target_create() {
  if [ "$2" = any ]; then
    daemon target create "$1" --allow-any-host
  else
    daemon_host "$2"
    daemon target create "$1" --host "$2"
  fi
}

# The list of hosts is given whole.
peer_target_allow() {
  local host hosts=()
  daemon_host "$2"
  for host in $(daemon --json target show "$1" | grep -o 'nqn\.2014-08\.org\.nvmexpress:uuid:[0-9a-f-]*') "$2"; do
    hosts+=(--host "$host")
  done
  daemon target set "$1" "${hosts[@]}"
}

daemon_host() { daemon host show "$1" > /dev/null 2>&1 || daemon host create "$1"; }

peer_target_remove() { daemon target remove "$1" --force; }

peer_host_chap() {
  local host=$1
  shift
  daemon host "$(daemon host show "$host" > /dev/null 2>&1 && echo set || echo create)" "$host" \
    --chap-user "$1" --chap-secret-file <(echo "$2") \
    ${3:+--mutual-user "$3" --mutual-secret-file <(echo "$4")}
}

# peer_host_dhchap HOST SECRET CONTROLLER_SECRET [ARGUMENT]...: what an NVMe host that exists has to prove, and the target to it.
peer_host_dhchap() {
  daemon host set "$1" --dhchap-secret-file <(echo "$2") --dhchap-ctrl-secret-file <(echo "$3") "${@:4}"
}

peer_host_remove() { daemon host remove "$1"; }

peer_session_count() { daemon --json session ls | jq length; }

# The negotiated keys of the sessions with a target, as KEY VALUE.
peer_session_keys() {
  daemon --json session ls |
    jq -r --arg target "$1" '.[] | select(.target == $target) | .iscsi.parameters | to_entries[] | "\(.key) \(.value)"'
}

peer_namespace_add() { daemon target attach "$1" "$3" --nsid "$2"; }
peer_namespace_remove() { daemon target detach "$1" "$2" --force; }
