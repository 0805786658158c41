# A quota that is used up, raised, and freed.
# shellcheck shell=bash

ramport share create db --options insecure,no_root_squash --quota 8M --files 4
head -c 3000000 /dev/urandom > "$WORK/file"
for name in a b; do
    nfs-cp "$WORK/file" "$(url "/db/$name")" > "$WORK/out" 2>&1 || fail "$(cat "$WORK/out")"
done
refused "Failed to write" nfs-cp "$WORK/file" "$(url /db/c)"
ramport share set db --quota 16M
nfs-cp "$WORK/file" "$(url /db/d)" > "$WORK/out" 2>&1 || fail "$(cat "$WORK/out")"
for name in a b d; do
    nfs-cat "$(url "/db/$name")" | cmp - "$WORK/file" || fail "$name is another file"
done
refused "Failed to creat" nfs-cp "$WORK/file" "$(url /db/e)"

# What the share had is free after it was removed.
used=$("$RAMPORT" --json capacity | jq .used_bytes)
ramport share rm db --force
freed=$((used - $("$RAMPORT" --json capacity | jq .used_bytes)))
[ "$freed" -ge 9000000 ] || fail "only $freed bytes were freed"
