# pynfs 4.0 and 4.1 against a share of each kind. The variable RAMPORT_PYNFS names a checkout (https://github.com/kofemann/pynfs) in which
# `python3 setup.py build` was called. Each share has a daemon of its own, since pynfs gives its clients the same names in each run; as tests
# wait for leases to expire, all run at once, for less than half an hour. The tests that fail are those of pynfs-failures,
# pynfs-failures-dir and pynfs-failures-4.0, and no others.
# shellcheck shell=bash disable=SC2154 # `run` sets what is not here

# served DIRECTORY COMMAND…: the command's daemon is the one whose files are in the directory.
served() { RAMPORT_SOCKET=$1/socket "$RAMPORT" "${@:2}"; }

# tested MINOR KIND OPTION…: all of pynfs for this minor version against a share of this kind, in a daemon of its own.
tested() {
    local minor=$1 kind=$2 at=$WORK/pynfs-$1-$2 server port
    mkdir "$at" "$at/files"
    "$RAMPORT" serve --memory 1G --cores 1 --state "$at/state" --socket "$at/socket" --log-level warn --nfs 127.0.0.1:0 2>> "$WORK/log" &
    server=$!
    trap 'kill "$server"' EXIT
    for _ in $(seq 200); do
        served "$at" capacity > /dev/null 2>&1 && break
        sleep 0.05
    done
    served "$at" share create db --kind "$kind" "${@:3}" --options insecure,no_root_squash > /dev/null
    port=$(served "$at" --json portal ls | jq -r '.[].url | sub(".*:"; "")')
    (cd "$PYNFS/nfs4.$minor" && python3 testserver.py "127.0.0.1:$port/db" --maketree --minorversion="$minor" --json="$at/results" all) \
        > "$at/out" 2>&1 || true
    trap - EXIT
    kill "$server"
    wait "$server" || fail "the daemon with the share of kind $kind has failed"
}

[ -d "$PYNFS/nfs4.1" ] || fail "set RAMPORT_PYNFS to a checkout of pynfs"
runs=()
for minor in 0 1; do
    tested "$minor" ramfs &
    runs+=("$!")
    tested "$minor" dir --path "$WORK/pynfs-$minor-dir/files" &
    runs+=("$!")
done
for at in "${runs[@]}"; do
    wait "$at" || fail "pynfs could not be run"
done
for run in 0-ramfs 0-dir 1-ramfs 1-dir; do
    at=$WORK/pynfs-$run
    case $run in
        0-*) failures=pynfs-failures-4.0 ;;
        1-dir) failures=pynfs-failures-dir ;;
        *) failures=pynfs-failures ;;
    esac
    [ -s "$at/results" ] || fail "pynfs gave no results: $(tail -n 20 "$at/out")"
    sed '/^#/d; s/ .*//' "$failures" | sort > "$at/expected"
    jq -r '.testcase[] | select(.failure) | .code' "$at/results" | sort > "$at/failed"
    diff -u "$at/expected" "$at/failed" >&2 || fail "$run: other tests of pynfs fail than $failures lists"
    echo "nfs: pynfs 4.$run: $(jq -r '"\(.tests - .skipped - .failures) of \(.tests - .skipped) pass"' "$at/results")"
done
