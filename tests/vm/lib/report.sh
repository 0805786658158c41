# What a person reads: notes on stderr, results on stdout, and their count.
# shellcheck shell=bash

# Results as RESULT NAME lines, of all processes of a run; FAULT NAME before a FAIL with a known fault of a guest.
REPORT_FILE=${VM_RUN:-$VM_STATE}/results

report_note() { echo "vm: $*" >&2; }

report_die() {
  echo "vm: $*" >&2
  exit 2
}

# report_result PASS|FAIL|SKIP NAME [REASON]: what passes after it has failed is FLAKY.
report_result() {
  local result=$1
  ! report_has_failed "$2" || [ "$result" != PASS ] || result=FLAKY
  [ "$result" != FAIL ] || ! report_sees_fault || echo "FAULT $2" >> "$REPORT_FILE"
  echo "$result $2" >> "$REPORT_FILE"
  echo "$result $2${3:+: $3}"
}

# report_cost NAME BEGAN_S: how long the file of tests took, and the processor time of what this process has started for it.
report_cost() {
  local fields
  read -ra fields < "/proc/$BASHPID/stat"
  awk -v name="$1" -v elapsed_s="$((SECONDS - $2))" -v ticks="$((fields[15] + fields[16]))" -v rate="$(getconf CLK_TCK)" \
    'BEGIN { printf "%s took %d s, and %.1f s of processors\n", name, elapsed_s, ticks / rate }'
}

report_has_failed() { report_names FAIL | grep -qxF "$1"; }

# report_names RESULT: the tests whose last result it is.
report_names() { awk -v result="$1" '$1 != "FAULT" { last[$2] = $1 } END { for (name in last) if (last[name] == result) print name }' "$REPORT_FILE" | sort; }

report_count() { report_names "$1" | wc -l; }

# Whether a console of this file's guests shows a fault that guest-faults describes.
report_sees_fault() { grep -qsE -f <(sed -n 's/^console //p' "$VM_TOP/guest-faults") "$VM_STATE"/*/console; }

# Tests that failed, then passed, neither listed in guest-faults nor with such a fault on a console when they failed.
report_unknown_flaky() {
  report_names FLAKY \
    | grep -vxFf <(sed 's/#.*//; /^console /d; s/[[:space:]].*//; /^$/d' "$VM_TOP/guest-faults") \
    | grep -vxFf <(sed -n 's/^FAULT //p' "$REPORT_FILE") || :
}

# The last line of a run. Fails when a test failed, when more than RUN_FLAKY_MAX tests were flaky that are not
# listed in guest-faults, and in CI also when a test was skipped with the default kernel.
report_summary() {
  local unknown
  echo "$(report_count PASS) passed, $(report_count FAIL) failed, $(report_count FLAKY) flaky, $(report_count SKIP) skipped"
  unknown=$(report_unknown_flaky)
  [ -z "$unknown" ] || report_note "failed, then passed, and not listed in tests/vm/guest-faults: ${unknown//$'\n'/ }"
  [ "$(report_count FAIL)" = 0 ] || return 1
  [ "$(grep -c . <<< "$unknown")" -le "${RUN_FLAKY_MAX:-0}" ] || return 1
  [ "$(report_count SKIP)" = 0 ] || [ "${CI:-}" != true ] || [ "${IMAGE_KERNEL:-}" != "${IMAGE_KERNEL_DEFAULT:-}" ] || {
    report_note "in CI a skipped test is a failure"
    return 1
  }
}
