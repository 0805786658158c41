#!/usr/bin/env bash
# cluster.sh RAMPORT: three daemons on loopback addresses form a cluster with a volume of two copies. Each node that holds a copy is
# killed in turn, one of them under verified load, and what was written is verified at the other. Needs etcd, and no root.
set -euo pipefail
RAMPORT=$(realpath "$1")
PORT=7450
NQN=nqn.2025-01.io.ramport:v1
WAIT_S=60
FOLDER=$(mktemp -d)
declare -A DAEMONS=()

main() {
    command -v etcd > /dev/null || {
        echo "cluster: etcd is not installed (Debian: etcd-server)" >&2
        exit 1
    }
    trap stop_all EXIT
    (umask 077; head -c 32 /dev/urandom | base64 > "$FOLDER/token")
    for node in 1 2 3; do start "$node"; done
    on 1 cluster create lab --nodes "127.0.0.1:$PORT,127.0.0.2:$PORT,127.0.0.3:$PORT"
    on 1 volume create v1 --size 256M --copies 2 > "$FOLDER/created"
    for node in 1 2 3; do on "$node" target create "$NQN" --volume v1 > /dev/null; done
    local primary secondary other load
    primary=$(copy primary)
    secondary=$(copy in_sync)
    other=$((6 - primary - secondary))

    echo "== writing through node n$primary; node n$secondary is killed after 3 s"
    bench "$primary" write --runtime 8 > "$FOLDER/report" &
    load=$!
    sleep 3
    stop "$secondary"
    wait "$load" || fail "the load failed"
    show "$other"
    grep checked "$FOLDER/report"

    echo "== node n$secondary is started again with empty memory"
    start "$secondary"
    wait_for "$other" 2
    show "$other"

    echo "== node n$primary is killed; what was written through it is read from node n$secondary"
    stop "$primary"
    wait_for "$secondary" 1
    bench "$secondary" read --size 256M > "$FOLDER/report" || fail "the contents differ"
    show "$secondary"
    grep checked "$FOLDER/report"
}

on() {
    local node=$1
    shift
    "$RAMPORT" --socket "$FOLDER/$node/socket" "$@"
}

start() {
    local node=$1 deadline=$((SECONDS + WAIT_S))
    mkdir -p "$FOLDER/$node"
    "$RAMPORT" --socket "$FOLDER/$node/socket" serve --state "$FOLDER/$node/state" --memory 512M --cores 1 \
        --nvme-tcp "127.0.0.$node" --cluster "127.0.0.$node:$PORT" --cluster-token-file "$FOLDER/token" --node-name "n$node" \
        2>> "$FOLDER/$node/log" &
    DAEMONS[$node]=$!
    until on "$node" capacity > /dev/null 2>&1; do
        if [ "$SECONDS" -ge "$deadline" ] || ! kill -0 "${DAEMONS[$node]}" 2> /dev/null; then
            fail "node n$node does not start: $(tail -n 3 "$FOLDER/$node/log")"
        fi
        sleep 0.1
    done
}

# The end of a machine: the daemon and its etcd are killed.
stop() {
    kill -KILL "${DAEMONS[$1]}" "$(cat "$FOLDER/$1/cluster/etcd.pid")" 2> /dev/null || :
    wait "${DAEMONS[$1]}" 2> /dev/null || :
    # Others may have these process numbers from now on.
    rm -f "$FOLDER/$1/cluster/etcd.pid"
    unset "DAEMONS[$1]"
}

stop_all() {
    for node in "${!DAEMONS[@]}"; do stop "$node"; done
    rm -rf "$FOLDER"
}

# copy STATE: the number of the node whose copy is in that state.
copy() {
    on 1 volume show v1 --json | tr -d ' \n' | grep -o "\"node\":\"n[0-9]\",\"state\":\"$1\"" | head -n 1 | grep -o 'n[0-9]"' | tr -d 'n"'
}

# wait_for NODE COPIES: until NODE says that so many copies are in sync.
wait_for() {
    local deadline=$((SECONDS + WAIT_S))
    until on "$1" volume show v1 --json 2> /dev/null | tr -d ' \n' | grep -q "\"in_sync\":$2,"; do
        [ "$SECONDS" -lt "$deadline" ] || fail "$2 copies are not in sync after $WAIT_S s"
        sleep 0.2
    done
}

bench() {
    local node=$1 rw=$2
    shift 2
    "$RAMPORT" bench "nvme+tcp://127.0.0.$node/$NQN" --rw "$rw" --verify --write --bs 64k --iodepth 4 "$@"
}

show() {
    on "$1" node ls
    on "$1" volume show v1 | grep -E '^(state|copy|epoch)'
}

fail() {
    echo "cluster: $1" >&2
    exit 1
}

main
