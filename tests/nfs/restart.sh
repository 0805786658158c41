# After a restart a share is defined, empty, and says so.
# shellcheck shell=bash

echo content > "$WORK/file"
ramport share create db --options insecure,no_root_squash --quota 8M
nfs-cp "$WORK/file" "$(url /db/file)" > "$WORK/out" 2>&1 || fail "$(cat "$WORK/out")"
LISTEN_PORT=$PORT
stop
launch
[ "$PORT" = "$LISTEN_PORT" ] || fail "the portal is at another port"
nfs-ls "$(url /db)" > "$WORK/out" 2>&1 || fail "$(cat "$WORK/out")"
[ ! -s "$WORK/out" ] || fail "it should be empty: $(cat "$WORK/out")"
[ "$(shown db .contents)" = lost ] || fail "the share does not say that its files are lost"
nfs-cp "$WORK/file" "$(url /db/file)" > "$WORK/out" 2>&1 || fail "$(cat "$WORK/out")"
nfs-cat "$(url /db/file)" | cmp - "$WORK/file" || fail "it is another file"
