# What the tests of packages share. Set by run: work; by a test: SOCKET.
# shellcheck shell=bash disable=SC2154

passed=0 failed=0
netns=ramport-packages-$$

# need root|PROGRAM…: ends the run if one is missing; in CI that is a failure.
need() {
    local lack=()
    for program in "$@"; do
        if [ "$program" = root ]; then
            [ "$(id -u)" -eq 0 ] || lack+=("root's rights")
        else
            command -v "$program" > /dev/null || lack+=("$program")
        fi
    done
    [ "${#lack[@]}" -gt 0 ] || return 0
    echo "packages: SKIPPED: ${lack[*]} missing; see tests/packages/packages" >&2
    [ "${CI:-}" != true ] || exit 1
    exit 0
}

# run_test NAME: runs the function in a shell of its own; prints its log if it fails.
run_test() {
    local status=0
    set +e
    (set -e; "$1") > "$work/log" 2>&1
    status=$?
    set -e
    end_daemon
    if [ "$status" -eq 0 ]; then
        passed=$((passed + 1))
        echo "PASS packages/$1"
    else
        failed=$((failed + 1))
        echo "FAIL packages/$1: status $status"
        sed 's/^/    /' "$work/log"
    fi
}

finish() {
    echo "packages: $passed passed, $failed failed"
    [ "$failed" -eq 0 ]
}

# in_root ROOT USER:GROUP COMMAND…: runs a command in ROOT, with /proc, and in the network of the tests. The mount is in a
# namespace of the command's own.
in_root() {
    # shellcheck disable=SC2016
    ip netns exec "$netns" sh -c '
        root=$1 user=$2
        shift 2
        mkdir -p "$root/proc"
        mount -t proc proc "$root/proc"
        exec chroot --userspec "$user" "$root" "$@"' - "$@"
}

# start_daemon ROOT USER:GROUP PROGRAM OPTION…: serves in ROOT as USER, until end_daemon. SOCKET is the path inside of ROOT.
start_daemon() {
    local root=$1
    ip netns add "$netns"
    ip -n "$netns" link set lo up
    in_root "$@" > "$work/daemon.log" 2>&1 &
    for _ in $(seq 300); do
        [ ! -S "$root$SOCKET" ] || return 0
        sleep 0.1
    done
    cat "$work/daemon.log"
    return 1
}

end_daemon() {
    [ -e "/run/netns/$netns" ] || return 0
    ip netns pids "$netns" | xargs --no-run-if-empty kill
    for _ in $(seq 100); do
        [ -n "$(ip netns pids "$netns")" ] || break
        sleep 0.1
    done
    ip netns del "$netns"
}

# serves ROOT USER:GROUP PROGRAM: a volume of the daemon there is written, read and verified over NVMe/TCP and iSCSI. The daemon runs
# as USER, not as root.
serves() {
    local root=$1 user=$2 program=$3
    local ramport=(in_root "$root" "$user" "$program" --socket "$SOCKET")
    "${ramport[@]}" volume create rd0 --size 16M
    "${ramport[@]}" target create nqn.2026-11.com.example:rd0 --volume rd0
    "${ramport[@]}" portal create iscsi://127.0.0.1
    "${ramport[@]}" target create iqn.2026-11.com.example:rd0 --volume rd0
    local shape=(--rw randwrite --bs 4k --iodepth 8 --size 4M --verify --write)
    "${ramport[@]}" bench 'nvme+tcp://127.0.0.1/nqn.2026-11.com.example:rd0?ns=1' "${shape[@]}"
    "${ramport[@]}" bench iscsi://127.0.0.1/iqn.2026-11.com.example:rd0/0 "${shape[@]}"
    "${ramport[@]}" volume show rd0 --json | jq --exit-status '.used_bytes > 0'
    # The daemon is all that runs in this network now.
    ip netns pids "$netns" | xargs ps -o uid= -p > "$work/uids"
    [ "$(wc -l < "$work/uids")" = 1 ] && ! grep -qw 0 "$work/uids"
}
