# libiscsi's conformance suite, whole, with both portals for its multipath tests. Nothing fails, and exactly the tests
# shellcheck shell=bash
# that docs/iscsi-conformance.md argues are skipped.

target=iqn.2025-01.io.ramport:conformance
ramport volume create rd0 --size 64M
ramport target create "$target" --volume rd0

# suite TESTS URL…: runs them, and fails where one does.
suite() {
    local tests=$1 summary total ran failed
    shift
    iscsi-test-cu --dataloss --allow-sanitize --test="$tests" --verbose "$@" > "$WORK/suite" 2>&1 || true
    summary=$(grep -E '^ +tests ' "$WORK/suite") || fail "the suite did not end: $(tail -20 "$WORK/suite")"
    read -r _ total ran _ failed _ <<< "$summary"
    echo "iscsi: $tests: $ran of $total tests ran, $failed failed"
    if [ "$failed" != 0 ] || [ "$ran" != "$total" ] || [ "$total" = 0 ]; then
        grep -E "^Suite: |^  Test: |FAILED" "$WORK/suite" | grep -B2 FAILED >&2
        fail "$failed of $total tests failed"
    fi
}

suite ALL "${PORTALS[0]}/$target/0" "${PORTALS[1]}/$target/0"
# "Suite.Test: why", sorted, each once.
awk '/^Suite: / { suite = $2 }
     match($0, /^  Test: [A-Za-z0-9_]+/) { test = substr($0, 9, RLENGTH - 8) }
     match($0, /\[SKIPPED\] .*/) { print suite "." test ": " substr($0, RSTART + 10) }' "$WORK/suite" \
    | sed 's/\(passed\|FAILED\)$//; s/ *$//' | sort -u > "$WORK/skips"
diff -u skips "$WORK/skips" >&2 || fail "other tests are skipped than tests/iscsi/skips lists"

# What is skipped on a volume that takes writes runs on one that is locked.
ramport volume lock rd0
suite SCSI.ReadOnly "${PORTALS[0]}/$target/0"
! grep -q SKIPPED "$WORK/suite" || fail "the tests of a read-only LUN are skipped: $(cat "$WORK/suite")"
