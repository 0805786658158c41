# What a person reads: notes on stderr, results on stdout, and their count.
# shellcheck shell=bash

REPORT_PASSED=0
REPORT_FAILED=0
REPORT_SKIPPED=0

report_note() { echo "vm: $*" >&2; }

report_die() {
  echo "vm: $*" >&2
  exit 2
}

# report_result PASS|FAIL|SKIP NAME [REASON]
report_result() {
  case $1 in
    PASS) REPORT_PASSED=$((REPORT_PASSED + 1)) ;;
    FAIL) REPORT_FAILED=$((REPORT_FAILED + 1)) ;;
    SKIP) REPORT_SKIPPED=$((REPORT_SKIPPED + 1)) ;;
  esac
  echo "$1 $2${3:+: $3}"
}

# The last line of a run. Fails when a test failed, and in CI also when one was skipped.
report_summary() {
  echo "$REPORT_PASSED passed, $REPORT_FAILED failed, $REPORT_SKIPPED skipped"
  [ "$REPORT_FAILED" = 0 ] || return 1
  [ "$REPORT_SKIPPED" = 0 ] || [ "${CI:-}" != true ] || {
    report_note "in CI a skipped test is a failure"
    return 1
  }
}
