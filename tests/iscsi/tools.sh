# libiscsi's tools: discovery, INQUIRY, capacity, swap of the write protection, a burst of I/O.
# shellcheck shell=bash

ramport volume create rd0 --size 64M
ramport volume create rd1 --size 1G --block-size 4096
ramport target create iqn.2025-01.io.ramport:tools --volume rd0 --volume rd1=5
target=iqn.2025-01.io.ramport:tools

# Discovery tells both portals with their groups, and both LUNs.
iscsi-ls -s "${PORTALS[0]}" > "$WORK/out"
expect "Target:$target Portal:${PORTALS[0]#iscsi://},1" "$WORK/out"
expect "Target:$target Portal:${PORTALS[1]#iscsi://},2" "$WORK/out"
[ "$(grep -c '^Lun:0 .*DIRECT_ACCESS' "$WORK/out")" = 2 ] || fail "LUN 0 is not seen through both portals"
[ "$(grep -c '^Lun:5 .*DIRECT_ACCESS' "$WORK/out")" = 2 ] || fail "LUN 5 is not seen through both portals"

iscsi-inq "${PORTALS[0]}/$target/0" > "$WORK/out"
expect "Vendor:RAMPORT" "$WORK/out"
for page in 0x00 0x80 0x83 0xb0 0xb1 0xb2; do
    iscsi-inq -e 1 -c "$page" "${PORTALS[1]}/$target/5" > "$WORK/out" || fail "page $page is not told"
done
iscsi-readcapacity16 "${PORTALS[0]}/$target/5" > "$WORK/out"
expect "Total size:1073741824" "$WORK/out"

# The software write protection of the control mode page, on and off.
iscsi-swp --swp=on "${PORTALS[0]}/$target/0" > "$WORK/out" 2>&1 || fail "$(cat "$WORK/out")"
iscsi-swp "${PORTALS[0]}/$target/0" > "$WORK/out" 2>&1
expect "SWP:1" "$WORK/out"
iscsi-swp --swp=off "${PORTALS[0]}/$target/0" > "$WORK/out" 2>&1

# A second of reads at depth 32, counted on both sides.
iscsi-perf -t 1 -m 32 -b 1 -r "${PORTALS[0]}/$target/5" > "$WORK/out" 2>&1 \
    || fail "$(cat "$WORK/out")"
reads=$("$RAMPORT" --json volume show rd1 | jq .statistics.read.operations)
[ "$reads" -gt 100 ] || fail "only $reads reads were counted"
