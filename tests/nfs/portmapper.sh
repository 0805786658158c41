# The daemon registers with rpcbind, here one in a network and a /run of its own: clients then need no ports.
# shellcheck shell=bash

# registered: the lines of rpcbind about NFS and MOUNT: program, version, transport, address.
registered() { rpcinfo -s 127.0.0.1 | awk '$1 == 100003 || $1 == 100005 { print $1, $2, $3 }' | sort | tr '\n' ';'; }
# registers WANTED SECONDS: waits until that is registered.
registers() {
    for _ in $(seq $(($2 * 10))); do
        [ "$(registered)" = "$1" ] && return
        sleep 0.1
    done
    fail "registered is \"$(registered)\" rather than \"$1\""
}
begin_rpcbind() {
    rpcbind -f 2> "$WORK/rpcbind" &
    rpcbind=$!
    for _ in $(seq 100); do
        rpcinfo -p 127.0.0.1 > /dev/null 2>&1 && return
        sleep 0.1
    done
    fail "rpcbind does not answer: $(cat "$WORK/rpcbind")"
}
end_rpcbind() {
    kill "$rpcbind"
    wait "$rpcbind" || true
}

if [ -z "${PORTMAPPER_ALONE:-}" ]; then
    if [ "$(id -u)" != 0 ]; then
        [ "${CI:-}" != true ] || fail "in CI a skipped test is a failure"
        echo "nfs: SKIPPED portmapper: it needs root, for a network of its own" >&2
        return
    fi
    stop
    PORTMAPPER_ALONE=1 unshare --net --mount "$HERE/run" portmapper
    start
    return
fi

ip link set lo up
mount -t tmpfs none /run
ALL='100003 4,3 tcp;100005 3 tcp;'
echo content > "$WORK/file"
ramport share create db --options insecure,no_root_squash --client 127.0.0.1

# The portal on loopback is not registered, one for all addresses is, as soon as there is an rpcbind.
begin_rpcbind
ramport portal create nfs://0.0.0.0:20490
registers "$ALL" 5
showmount --no-headers -e 127.0.0.1 > "$WORK/out"
[ "$(tr -s ' ' < "$WORK/out")" = "/db 127.0.0.1" ] || fail "exports: $(cat "$WORK/out")"
nfs-cp "$WORK/file" "nfs://127.0.0.1/db/file?uid=0&gid=0" > "$WORK/out" 2>&1 || fail "$(cat "$WORK/out")"
nfs-cat "nfs://127.0.0.1/db/file" | cmp - "$WORK/file" || fail "it is another file"

# Datagrams, also without a portal for TCP: what is registered answers there, and version 4 is not.
ramport portal create nfs+udp://0.0.0.0:20490
ramport portal rm nfs://0.0.0.0:20490
registers '100003 3 udp;100005 3 udp;' 5
for program in '100003 3' '100005 3' '100021 4' '100024 1'; do
    # shellcheck disable=SC2086
    rpcinfo -u 127.0.0.1 $program > "$WORK/out" 2>&1 || fail "$program: $(cat "$WORK/out")"
done
refused "not available" rpcinfo -n 20490 -u 127.0.0.1 100003 4
showmount --no-headers -e 127.0.0.1 > "$WORK/out"
[ "$(tr -s ' ' < "$WORK/out")" = "/db 127.0.0.1" ] || fail "exports: $(cat "$WORK/out")"
"$RAMPORT" portal ls > "$WORK/out"
expect "udp 20490" "$WORK/out"
ramport portal rm nfs+udp://0.0.0.0:20490 --force
registers "" 5
ramport portal create nfs://0.0.0.0:20490
registers "$ALL" 5

# rpcbind forgets everything when it restarts.
end_rpcbind
begin_rpcbind
[ -z "$(registered)" ] || fail "rpcbind remembers $(registered)"
registers "$ALL" 40

# The daemon's end removes the registrations.
stop
registers "" 5

# A daemon of an ordinary user.
mkdir "$WORK/theirs"
chown 65534:65534 "$WORK/theirs"
chmod 755 "$WORK"
setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set -all "$RAMPORT" --socket "$WORK/theirs/socket" serve --memory 1G --cores 1 \
    --state "$WORK/theirs/state" --log-level warn --nfs 0.0.0.0:20490 2>> "$WORK/log" &
# shellcheck disable=SC2034 # stop ends it
daemon=$!
registers "$ALL" 5
stop
registers "" 5
launch
end_rpcbind
