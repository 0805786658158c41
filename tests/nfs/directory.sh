# A directory of this machine: what clients write is in it, also after the daemon was killed, and clients go on.
# shellcheck shell=bash disable=SC2034,SC2154 # `run` uses and sets what is not here

mkdir "$WORK/files"
chmod 755 "$WORK" "$WORK/files"
ramport share create pub --kind dir --path "$WORK/files" --options insecure,no_root_squash
for size in 0 1 4097 10485761; do
    head -c "$size" /dev/urandom > "$WORK/$size"
    nfs-cp "$WORK/$size" "$(url "/pub/$size")" > "$WORK/out" 2>&1 || fail "$(cat "$WORK/out")"
    cmp "$WORK/$size" "$WORK/files/$size" || fail "the file of $size bytes is another in the directory"
    nfs-cat "$(url "/pub/$size")" | cmp - "$WORK/$size" || fail "clients see another file of $size bytes"
done
nfs-ls "$(url /pub)" > "$WORK/out"
[ "$(wc -l < "$WORK/out")" = 4 ] || fail "4 files are expected: $(cat "$WORK/out")"

# Nothing outside of the directory is reached.
echo secret > "$WORK/secret"
ln -s "$WORK/secret" "$WORK/files/link"
ln -s .. "$WORK/files/up"
for path in /pub/../secret /pub/up/secret /pub/link; do
    ! nfs-cat "$(url "$path")" > "$WORK/out" 2>&1 || ! grep -q secret "$WORK/out" || fail "$path leads outside"
done
rm "$WORK/files/link" "$WORK/files/up"

# A daemon that is killed keeps what it has answered, and one that is started again serves it.
LISTEN_PORT=$PORT
nfs-cp "$WORK/10485761" "$(url /pub/last)" > "$WORK/out" 2>&1 || fail "$(cat "$WORK/out")"
kill -KILL "$daemon"
wait "$daemon" 2> /dev/null || true
cmp "$WORK/10485761" "$WORK/files/last" || fail "an answered write is not in the directory"
launch
nfs-cat "$(url /pub/last)" | cmp - "$WORK/10485761" || fail "it is another file after the restart"
[ "$(shown pub .problem)" = null ] || fail "the share has a problem: $(shown pub .problem)"

# A directory that is away makes the share unavailable, and nothing else.
ramport share create db --options insecure,no_root_squash
stop
mv "$WORK/files" "$WORK/away"
launch
case $(shown pub .problem) in
    *"does not exist; choose an existing directory"*) ;;
    *) fail "it does not say what is wrong: $(shown pub .problem)" ;;
esac
"$RAMPORT" share ls > "$WORK/out"
expect unavailable "$WORK/out"
refused "" nfs-ls "$(url /pub)"
nfs-ls "$(url /db)" > "$WORK/out" 2>&1 || fail "$(cat "$WORK/out")"
mv "$WORK/away" "$WORK/files"
for _ in $(seq 100); do
    [ "$(shown pub .problem)" != null ] || break
    sleep 0.1
done
nfs-cat "$(url /pub/last)" | cmp - "$WORK/10485761" || fail "it is another file once the directory is back"

# Without privileges: files belong to the daemon's user, whom all clients act as.
mkdir "$WORK/own"
chown 65534:65534 "$WORK/own"
setpriv --reuid 65534 --regid 65534 --clear-groups "$RAMPORT" serve --memory 256M --cores 1 --socket "$WORK/own/socket" \
    --state "$WORK/own/state" --log-level warn --nfs 127.0.0.1:0 2>> "$WORK/log" &
other=$!
other_end() {
    kill "$other"
    wait "$other" || true
}
trap 'other_end; stop; rm -rf "$WORK"' EXIT
for _ in $(seq 200); do
    RAMPORT_SOCKET=$WORK/own/socket "$RAMPORT" capacity > /dev/null 2>&1 && break
    sleep 0.05
done
mkdir "$WORK/own/files" "$WORK/closed"
chown 65534:65534 "$WORK/own/files"
chmod 700 "$WORK/closed"
RAMPORT_SOCKET=$WORK/own/socket
refused "the user of this process may not read it" "$RAMPORT" share create closed --kind dir --path "$WORK/closed"
ramport share create own --kind dir --path "$WORK/own/files" --options insecure,all_squash,anonuid=65534,anongid=65534
PORT=$("$RAMPORT" --json portal ls | jq -r '.[].url | select(startswith("nfs:")) | sub(".*:"; "")')
nfs-cp "$WORK/4097" "$(url /own/file 1000)" > "$WORK/out" 2>&1 || fail "$(cat "$WORK/out")"
nfs-cat "$(url /own/file 1000)" | cmp - "$WORK/4097" || fail "it is another file"
[ "$(stat -c %u "$WORK/own/files/file")" = 65534 ] || fail "the file is not the daemon's"
other_end
RAMPORT_SOCKET=$WORK/socket
trap 'stop; rm -rf "$WORK"' EXIT
