# libnfs's tools: files are copied to a share and back, listed, and counted.
# shellcheck shell=bash

ramport share create db --options insecure,no_root_squash
for size in 0 1 4095 4096 4097 1048576 10485761; do
    head -c "$size" /dev/urandom > "$WORK/$size"
    nfs-cp "$WORK/$size" "$(url "/db/$size")" > "$WORK/out" 2>&1 || fail "$(cat "$WORK/out")"
    rm -f "$WORK/back"
    nfs-cp "$(url "/db/$size")" "$WORK/back" > "$WORK/out" 2>&1 || fail "$(cat "$WORK/out")"
    cmp "$WORK/$size" "$WORK/back" || fail "the file of $size bytes is another"
done
nfs-cat "$(url /db/10485761)" | cmp - "$WORK/10485761" || fail "nfs-cat shows another file"

nfs-ls "$(url /db)" > "$WORK/out"
[ "$(wc -l < "$WORK/out")" = 7 ] || fail "7 files are expected: $(cat "$WORK/out")"
for size in 0 4097 10485761; do
    grep -Eq " $size +$size\$" "$WORK/out" || fail "no file of $size bytes: $(cat "$WORK/out")"
done

# A copy inside the share, over the longest name.
name=$(printf 'n%.0s' {1..255})
nfs-cp "$(url /db/1048576)" "$(url "/db/$name")" > "$WORK/out" 2>&1 || fail "$(cat "$WORK/out")"
nfs-cat "$(url "/db/$name")" | cmp - "$WORK/1048576" || fail "the copy is another"
refused NFS3ERR_NAMETOOLONG nfs-cp "$WORK/1" "$(url "/db/${name}n")"

# Both sides count the same.
written=$((0 + 1 + 4095 + 4096 + 4097 + 2 * 1048576 + 10485761))
counted=$(shown db .statistics.write.bytes)
[ "$counted" = "$written" ] || fail "$written bytes were written, and $counted counted"
[ "$(shown db .files)" = 8 ] || fail "$(shown db .files) files are counted"
[ "$(shown db .used_bytes)" -ge "$written" ] || fail "only $(shown db .used_bytes) bytes are used"

# Several clients at once.
for client in 1 2 3 4; do
    (
        nfs-cp "$WORK/10485761" "$(url "/db/client-$client")" > "$WORK/out-$client" 2>&1
        nfs-cat "$(url "/db/client-$client")" | cmp - "$WORK/10485761"
    ) &
    clients[client]=$!
done
for client in 1 2 3 4; do
    wait "${clients[client]}" || fail "client $client: $(cat "$WORK/out-$client")"
done
