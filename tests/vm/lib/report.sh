# What a person reads: notes on stderr, results on stdout, and their count.
# shellcheck shell=bash

# The last result of each test.
declare -A REPORT_RESULTS=()

report_note() { echo "vm: $*" >&2; }

report_die() {
  echo "vm: $*" >&2
  exit 2
}

# report_result PASS|FAIL|SKIP NAME [REASON]: what passes after it has failed is FLAKY.
report_result() {
  local result=$1
  ! report_has_failed "$2" || [ "$result" != PASS ] || result=FLAKY
  REPORT_RESULTS[$2]=$result
  echo "$result $2${3:+: $3}"
}

report_has_failed() { [ "${REPORT_RESULTS[$1]:-}" = FAIL ]; }

# report_names RESULT: the tests whose last result it is.
report_names() {
  local name
  for name in "${!REPORT_RESULTS[@]}"; do
    [ "${REPORT_RESULTS[$name]}" != "$1" ] || echo "$name"
  done | sort
}

report_count() { report_names "$1" | wc -l; }

# The last line of a run. Fails when a test failed, and in CI also when one was skipped.
report_summary() {
  echo "$(report_count PASS) passed, $(report_count FAIL) failed, $(report_count FLAKY) flaky, $(report_count SKIP) skipped"
  [ "$(report_count FAIL)" = 0 ] || return 1
  [ "$(report_count SKIP)" = 0 ] || [ "${CI:-}" != true ] || {
    report_note "in CI a skipped test is a failure"
    return 1
  }
}
