# Who may do what: shares for others, ports, read-only shares, users.
# shellcheck shell=bash

echo content > "$WORK/file"
ramport share create db --options insecure,no_root_squash
nfs-cp "$WORK/file" "$(url /db/of-root)" > "$WORK/out" 2>&1 || fail "$(cat "$WORK/out")"

# A share for others, and one that does not exist.
ramport share create others --options insecure --client 192.0.2.0/24
refused MNT3ERR_ACCES nfs-ls "$(url /others)"
refused MNT3ERR_NOENT nfs-ls "$(url /none)"
ramport share set others --client 192.0.2.0/24 --client 127.0.0.1
nfs-ls "$(url /others)" > "$WORK/out" 2>&1 || fail "$(cat "$WORK/out")"

# Only clients at a port below 1024, unless the share is insecure. libnfs uses one if it may.
ramport share create safe
if [ "$(id -u)" = 0 ]; then
    nfs-ls "$(url /safe)" > "$WORK/out" 2>&1 || fail "$(cat "$WORK/out")"
    unprivileged=(setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set -all)
else
    unprivileged=()
fi
refused MNT3ERR_ACCES "${unprivileged[@]}" nfs-ls "$(url /safe)"
"${unprivileged[@]}" nfs-ls "$(url /db)" > "$WORK/out" 2>&1 || fail "$(cat "$WORK/out")"
expect of-root "$WORK/out"

# Users: root's folder is root's, and squashed users are nobody.
refused NFS3ERR_ACCES nfs-cp "$WORK/file" "$(url /db/of-1000 1000)"
ramport share set db --options root_squash
refused NFS3ERR_ACCES nfs-cp "$WORK/file" "$(url /db/of-nobody)"
ramport share set db --options all_squash,anonuid=0,anongid=0
nfs-cp "$WORK/file" "$(url /db/of-1000 1000)" > "$WORK/out" 2>&1 || fail "$(cat "$WORK/out")"

# A share that is read-only.
ramport share set db --options ro
refused NFS3ERR_ROFS nfs-cp "$WORK/file" "$(url /db/late)"
nfs-cat "$(url /db/of-1000)" | cmp - "$WORK/file" || fail "it cannot be read"
