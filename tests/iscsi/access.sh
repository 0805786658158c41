# Who may do what: hosts by name and address, any host for reading, LUNs mapped by host, ended sessions.
# shellcheck shell=bash

me=iqn.2007-10.com.github:sahlberg:libiscsi:iscsi-inq
target=iqn.2025-01.io.ramport:access
ramport volume create rd0 --size 64M
ramport volume create rd1 --size 32M
ramport host create "$me"
ramport host create iqn.2025-01.com.example:other
ramport target create "$target" --volume rd0 --volume rd1 --host iqn.2025-01.com.example:other

# A host that is not on the list does not even see the target.
iscsi-ls "${PORTALS[0]}" > "$WORK/out"
! grep -q "$target" "$WORK/out" || fail "a stranger discovers the target"
refused "Authorization failure(514)" iscsi-inq "${PORTALS[0]}/$target/0"
expect "a login was refused" "$WORK/log"

# On the list, with LUN 3 for number 1 alone.
ramport target set "$target" --host "$me" --luns "$me=3:1"
iscsi-inq "${PORTALS[0]}/$target/3" > "$WORK/out"
expect "CONNECTED" "$WORK/out"
! grep -q "Qualifier:DISCONNECTED" "$WORK/out" || fail "LUN 3 is not there"
iscsi-inq "${PORTALS[0]}/$target/1" > "$WORK/out" 2>&1 || true
! grep -q "Device Type:DIRECT_ACCESS" "$WORK/out" || fail "LUN 1 is seen though it is not mapped"

# From another address it is another host.
ramport host set "$me" --address 192.0.2.0/24
refused "Authorization failure(514)" iscsi-inq "${PORTALS[0]}/$target/3"

# Any host may read, none may write.
ramport target set "$target" --allow-any-host=read-only
qemu-io -f raw -r -c 'read -P 0 0 64k' "${PORTALS[0]}/$target/0" > "$WORK/out" 2>&1
expect "read 65536/65536" "$WORK/out"
refused "SOFTWARE_WRITE_PROTECTED" qemu-io -f raw -c 'write -P 1 0 64k' "${PORTALS[0]}/$target/0"

# Portal groups: the target is told of, and let in to, by portals of its groups alone.
ramport target set "$target" --portal-group 2
iscsi-ls "${PORTALS[0]}" > "$WORK/out"
expect "Target:$target Portal:${PORTALS[1]#iscsi://},2" "$WORK/out"
! grep -qF "Portal:${PORTALS[0]#iscsi://},1" "$WORK/out" || fail "a portal of another group is told"
refused "Target not found(515)" iscsi-inq "${PORTALS[0]}/$target/0"
iscsi-inq "${PORTALS[1]}/$target/0" > "$WORK/out" 2>&1 || fail "$(cat "$WORK/out")"
"$RAMPORT" ls > "$WORK/out"
expect "for any (read-only), through portal groups 2" "$WORK/out"
"$RAMPORT" export > "$WORK/export.toml"
expect "portal_groups = [2]" "$WORK/export.toml"
ramport apply "$WORK/export.toml"
ramport target set "$target" --any-portal-group
iscsi-inq "${PORTALS[0]}/$target/0" > "$WORK/out" 2>&1 || fail "$(cat "$WORK/out")"

# A target without a name gets one; a session is shown with what was negotiated, and can be ended.
ramport volume create rd2 --size 64M
name=$("$RAMPORT" --json target create --iscsi --volume rd2 | jq -r .name)
iscsi-perf -t 4 -m 1 "${PORTALS[1]}/$name/0" > "$WORK/perf" 2>&1 &
perf=$!
for _ in $(seq 100); do
    session=$("$RAMPORT" --json session ls | jq --arg name "$name" '[.[] | select(.target == $name)][0].id // empty')
    [ -z "$session" ] || break
    sleep 0.05
done
"$RAMPORT" session show "$session" > "$WORK/out"
expect "iscsi" "$WORK/out"
expect "MaxBurstLength" "$WORK/out"
"$RAMPORT" ls > "$WORK/out"
expect "LUN 0: " "$WORK/out"
expect "logged in" "$WORK/out"
ramport session rm "$session"
# It would connect again for ever.
kill -KILL "$perf"
wait "$perf" 2> /dev/null || true
