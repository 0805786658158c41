# A quota that is used up, raised, and freed.
# shellcheck shell=bash

ramport share create db --options insecure,no_root_squash --quota 8M --files 3
head -c 3000000 /dev/urandom > "$WORK/file"
for name in a b; do
    nfs-cp "$WORK/file" "$(url "/db/$name")" > "$WORK/out" 2>&1 || fail "$(cat "$WORK/out")"
done
! nfs-cp "$WORK/file" "$(url /db/c)" > "$WORK/out" 2>&1 || fail "9 MB fit into 8 MiB"
grep -Eq 'NFS3ERR_(NOSPC|DQUOT)' "$WORK/out" || fail "another error: $(cat "$WORK/out")"
ramport share set db --quota 16M
nfs-cp "$WORK/file" "$(url /db/c)" > "$WORK/out" 2>&1 || fail "$(cat "$WORK/out")"
for name in a b c; do
    nfs-cat "$(url "/db/$name")" | cmp - "$WORK/file" || fail "$name is another file"
done
! nfs-cp "$WORK/file" "$(url /db/d)" > "$WORK/out" 2>&1 || fail "there are more files than may be"
grep -Eq 'NFS3ERR_(NOSPC|DQUOT)' "$WORK/out" || fail "another error: $(cat "$WORK/out")"

# What the share had is free after it was removed.
used=$("$RAMPORT" --json capacity | jq .used_bytes)
ramport share rm db --force
freed=$((used - $("$RAMPORT" --json capacity | jq .used_bytes)))
[ "$freed" -ge 9000000 ] || fail "only $freed bytes were freed"
