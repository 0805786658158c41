# Runs the tests of one file of a suite: the functions test_* of suites/SUITE/FILE.sh, in order,
# each in a process of its own with a time limit. A file may have the functions setup
# and teardown, run before and after its tests. suite.sh has suite_start FILE, which starts
# the guest and the peer and defines what the peer serves, and what the tests share.
# shellcheck shell=bash

# Limits are seconds of the guest's progress (guest_progress_ms).
SUITE_TEST_LIMIT_S=${RAMPORT_VM_TEST_LIMIT_S:-480}
# What failures may take of a suite's time; then the rest of it is not run.
SUITE_FAILURES_LIMIT_S=600
SUITE_SKIP_STATUS=77
SUITE_LOG_LINES=60
# What the allocator and the counters of a host may take, after many rounds, that was not there before.
SUITE_MEMORY_GROWTH_MAX_KIB=4096
SUITE_ROUNDS_PER_LOOK=100
SUITE_POLL_S=0.05
SUITE_POLLS_PER_LIMIT_CHECK=20
SUITE_JOB=''
SUITE_STATUS=0
SUITE_GUEST_FILES=()

# The tests as FILE/NAME, one a line.
suite_tests() {
  local suite=$1 only=$2 long length name
  long=$'\n'$(suite_long_tests)$'\n'
  suite_all_tests "$suite" | while read -r name; do
    length=short
    [[ $long != *$'\n'"$suite/$name"$'\n'* ]] || length=long
    # shellcheck disable=SC2053  # a pattern it is
    [[ $name != $only || $length != "${RUN_LENGTH:-$length}" ]] || echo "$name"
  done
}

suite_all_tests() {
  local file
  for file in "$VM_TOP/suites/$1"/[0-9]*.sh; do
    sed -n "s|^test_\([a-z0-9_]*\)().*|$(basename "$file" .sh)/\1|p" "$file"
  done
}

# Those that --short leaves out and --long runs, as SUITE/FILE/NAME.
suite_long_tests() { sed 's/[[:space:]]*#.*//; /^$/d' "$VM_TOP/long"; }

# Every entry of the list is a test.
suite_check_long() {
  local name
  for name in $(suite_long_tests); do
    suite_all_tests "${name%%/*}" | grep -xF "${name#*/}" > /dev/null || report_die "tests/vm/long: there is no test $name; remove the entry"
  done
}

suite_skip() {
  local name
  while read -r name; do report_result SKIP "$1/$name" "$3"; done < <(suite_tests "$1" "$2")
}

# suite_run SUITE FILE ONLY: with a guest and a peer of its own.
suite_run() {
  SUITE=$1 SUITE_FAULTS_SEEN=0
  : >> "$VM_RUN/$SUITE.failures"
  if suite_is_given_up; then
    suite_not_run "$2"
    return
  fi
  # shellcheck source=/dev/null
  . "$VM_TOP/peers/$PEER.sh"
  # shellcheck source=/dev/null
  . "$VM_TOP/suites/$SUITE/suite.sh"
  mkdir -p "$VM_STATE/log"
  suite_start "$2" > "$VM_STATE/log/start"
  suite_file "$2" "$3"
}

suite_is_given_up() { [ "$(suite_failures_s)" -ge "$SUITE_FAILURES_LIMIT_S" ]; }
suite_not_run() { report_result FAIL "$SUITE/$1" "not run, since failures took $(suite_failures_s) s"; }
# What failures have taken of this suite's time, in all its files.
suite_failures_s() { awk '{ sum += $1 } END { print sum + 0 }' "$VM_RUN/$SUITE.failures"; }

# suite_boot: the bridges, the peer, and the guest with a card on each bridge, prepared by the script on stdin.
suite_boot() {
  net_bridge br0 10.77.0.1/24
  net_bridge br1 10.77.1.1/24
  peer_start
  guest_start host -m 1024 -n br0=10.77.0.11/24 -n br1=10.77.1.11/24 -p "$(guest_script)"
  cp "$RAMPORT" "$VM_STATE/host/share/ramport"
}

# The tests of one file between its setup and its teardown.
suite_file() {
  local file=$1 name status tests
  mapfile -t tests < <(suite_tests "$SUITE" "$2" | grep "^$file/")
  suite_step "$file" setup
  status=$SUITE_STATUS
  for name in "${tests[@]}"; do
    if suite_is_given_up; then
      suite_not_run "$name"
      continue
    fi
    case $status in
      0) suite_test "$file" "${name#*/}" ;;
      "$SUITE_SKIP_STATUS") report_result SKIP "$SUITE/$name" "$(suite_skip_reason "$VM_STATE/log/$file.setup")" ;;
      *) report_result FAIL "$SUITE/$name" "its setup failed" ;;
    esac
  done
  [ "$status" != "$SUITE_SKIP_STATUS" ] || return 0
  suite_step "$file" teardown
  if [ "$SUITE_STATUS" != 0 ]; then
    report_result FAIL "$SUITE/$file/teardown" "see above"
  elif report_has_failed "$SUITE/$file/teardown"; then
    report_result PASS "$SUITE/$file/teardown"
  fi
}

# setup or teardown of a file, if it has one. Sets SUITE_STATUS.
suite_step() {
  local log=$VM_STATE/log/$1.$2
  SUITE_STATUS=0
  grep -q "^$2()" "$VM_TOP/suites/$SUITE/$1.sh" || return 0
  suite_limited "$log" "$SUITE_TEST_LIMIT_S" suite_function "$1" "$2"
  case $SUITE_STATUS in
    0 | "$SUITE_SKIP_STATUS") ;;
    *)
      report_note "$2 of $1 failed with status $SUITE_STATUS"
      suite_show "$log"
      ;;
  esac
}

suite_test() {
  local file=$1 name=$2 log=$VM_STATE/log/$1.$2 started_s=$EPOCHREALTIME status took
  suite_capture_start "$log"
  suite_limited "$log" "$SUITE_TEST_LIMIT_S" suite_function "$file" "test_$name"
  status=$SUITE_STATUS
  suite_capture_stop
  took=$(awk -v a="$started_s" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f s", b - a }')
  if suite_new_faults > "$log.faults"; then status=fault; fi
  peer_alive || status=peer
  case $status in
    0) report_result PASS "$SUITE/$file/$name" "$took" ;;
    "$SUITE_SKIP_STATUS") report_result SKIP "$SUITE/$file/$name" "$(suite_skip_reason "$log")" ;;
    fault) report_result FAIL "$SUITE/$file/$name" "the guest's kernel complains ($took)" ;;
    peer) report_result FAIL "$SUITE/$file/$name" "the peer is gone ($took)" ;;
    124 | 137) report_result FAIL "$SUITE/$file/$name" "over its time limit ($took)" ;;
    *) report_result FAIL "$SUITE/$file/$name" "status $status ($took)" ;;
  esac
  case $status in
    0 | "$SUITE_SKIP_STATUS") rm -f "$log".*.pcap "$log.faults" ;;
    *)
      suite_show "$log" "$log.faults" && peer_log | tail -n 6 | sed 's/^/  peer| /'
      ;;
  esac
}

# guest [NAME=VALUE]...: the script on stdin, in the guest, as guest_script completes it.
guest() { guest_script "$@" | guest_exec host -t "$SUITE_TEST_LIMIT_S"; }

# guest_script [NAME=VALUE]...: the script on stdin, behind the suite's guest.sh, what its suite.sh lists in SUITE_GUEST_FILES, the
# variables that its suite.sh lists in SUITE_NAMES, and the names given.
guest_script() {
  local name assignment
  cat "$VM_TOP/guest/prelude.sh" "${SUITE_GUEST_FILES[@]}" "$VM_TOP/suites/$SUITE/guest.sh"
  for name in "${SUITE_NAMES[@]}"; do printf 'export %s=%q\n' "$name" "${!name}"; done
  for assignment; do printf 'export %s=%q\n' "${assignment%%=*}" "${assignment#*=}"; done
  cat
}

# A test calls this when the peer at hand cannot do what it asks.
skip() {
  echo "skip: $*"
  exit "$SUITE_SKIP_STATUS"
}

# needs_modules NAME...: skips where the guest's kernel lacks one of these entries of guest/modules.
needs_modules() {
  local name
  for name; do
    ! grep -qxF "$name" "$IMAGE_LACKS" || skip "$IMAGE_KERNEL has no module $name"
  done
}

suite_skip_reason() { sed -n 's/^skip: //p' "$1" | tail -n 1; }

suite_show() {
  local log
  for log; do
    [ ! -s "$log" ] || tail -n "$SUITE_LOG_LINES" "$log" | sed 's/^/  | /'
  done
}

# suite_function FILE FUNCTION: that of the file.
suite_function() {
  # shellcheck source=/dev/null
  . "$VM_TOP/suites/$SUITE/$1.sh"
  "$2"
}

# suite_limited LOG SECONDS COMMAND...: in a process group of its own, ended at the limit. Sets
# SUITE_STATUS and returns 0: wherever a status is looked at (||, if), bash runs all that is
# called there without -e, even in a subshell that sets it, and a test went on after a failure.
suite_limited() {
  local log=$1 limit_s=$2 began_ms polls=0
  shift 2
  SUITE_STATUS=0
  mkdir -p "$(dirname "$log")"
  began_ms=$(guest_progress_ms host)
  guest_limit_start host "$limit_s"
  set -m
  (
    set +m -eE
    trap 'echo "$(basename "${BASH_SOURCE[0]}"):$LINENO: failed: $BASH_COMMAND"' ERR
    "$@"
  ) > "$log" 2>&1 < /dev/null &
  SUITE_JOB=$!
  set +m
  while kill -0 "$SUITE_JOB" 2> /dev/null; do
    polls=$((polls + 1))
    if [ $((polls % SUITE_POLLS_PER_LIMIT_CHECK)) = 0 ] && guest_limit_passed; then
      kill -KILL -- "-$SUITE_JOB" 2> /dev/null || :
    fi
    sleep "$SUITE_POLL_S"
  done
  wait "$SUITE_JOB" || SUITE_STATUS=$?
  SUITE_JOB=''
  case $SUITE_STATUS in
    0 | "$SUITE_SKIP_STATUS") ;;
    *) echo $((($(guest_progress_ms host) - began_ms) / 1000)) >> "$VM_RUN/$SUITE.failures" ;;
  esac
}

# Ends what a test may still have running, then the peer.
suite_stop_limited() {
  [ -z "$SUITE_JOB" ] || kill -KILL -- "-$SUITE_JOB" 2> /dev/null || :
  SUITE_JOB=''
  suite_capture_stop
  if declare -F peer_stop > /dev/null; then peer_stop || :; fi
}

SUITE_CAPTURES=()
# Headers of all that passes the bridges, kept for a test that fails.
suite_capture_start() {
  local bridge
  for bridge in br0 br1; do
    "${NET_RUN[@]}" tcpdump -i "$bridge" -n -s 160 -B 8192 -U -w "$1.$bridge.pcap" > /dev/null 2>&1 < /dev/null &
    SUITE_CAPTURES+=("$!")
  done
}

suite_capture_stop() {
  local pid
  for pid in "${SUITE_CAPTURES[@]}"; do
    kill "$pid" 2> /dev/null || :
    wait "$pid" 2> /dev/null || :
  done
  SUITE_CAPTURES=()
}

# Prints the kernel faults that came since the last call; fails when there are none.
suite_new_faults() {
  local seen=$SUITE_FAULTS_SEEN
  SUITE_FAULTS_SEEN=$(guest_faults host | wc -l)
  [ "$SUITE_FAULTS_SEEN" -gt "$seen" ] && guest_faults host | tail -n "+$((seen + 1))"
}

# peer_has_rdma_threads COUNT: the peer is started again, with so many for each address where it serves RDMA in software.
peer_has_rdma_threads() {
  peer_can rdma-threads || skip "an adapter's RDMA is carried by one thread"
  # shellcheck disable=SC2034  # peer_crash starts with it
  local SERVE_ARGUMENTS=(--rdma-threads "$1")
  peer_crash
}

# rdma_threads_share_the_work COUNT BEFORE: since the peer told BEFORE (peer_rdma_threads_us), each of its threads has done at
# least a quarter of an even share.
rdma_threads_share_the_work() {
  join <(echo "$2") <(peer_rdma_threads_us) | awk -v count="$1" '
    { name[NR] = $1; us[NR] = $3 - $2; sum += us[NR] }
    END {
      for (i = 1; i <= NR; i++) {
        print name[i] " worked for " us[i] " us"
        if (us[i] < sum / count / 4) idle = 1
      }
      exit NR != count || idle
    }'
}

# rounds_leave_nothing COUNT: neither descriptors nor memory nor sessions. The suite's, or the file's, `rounds COUNT` makes and ends
# ten connections in each.
rounds_leave_nothing() {
  local count=$1 done=0 some before=''
  rounds 1
  ! peer_can usage || before=$(peer_usage)
  while [ "$done" -lt "$count" ]; do
    some=$((count - done < SUITE_ROUNDS_PER_LOOK ? count - done : SUITE_ROUNDS_PER_LOOK))
    rounds "$some"
    done=$((done + some))
    echo "after $done rounds"
    [ -z "$before" ] || nothing_is_left "$before"
  done
}

# Descriptors, KiB of memory, bytes charged to the budget.
peer_usage() { echo "$(peer_descriptors) $(peer_memory_kib) $(peer_charged_bytes)"; }

# nothing_is_left BEFORE: of what there is now, as told by peer_usage then.
nothing_is_left() {
  local descriptors memory_kib charged_bytes now
  read -r descriptors memory_kib charged_bytes <<< "$1"
  read -ra now <<< "$(peer_usage)"
  echo "descriptors: $descriptors before, ${now[0]} now"
  echo "memory: $memory_kib KiB before, ${now[1]} KiB now"
  echo "charged to the budget: $charged_bytes bytes before, ${now[2]} bytes now"
  [ "${now[0]}" -le "$descriptors" ]
  [ "${now[1]}" -le $((memory_kib + SUITE_MEMORY_GROWTH_MAX_KIB)) ]
  [ "${now[2]}" -le "$charged_bytes" ]
  [ "$(peer_session_count)" = 0 ]
}

# suite_example PACKAGE NAME: where that program of ours is.
suite_example() {
  local program=${CARGO_TARGET_DIR:-$VM_TOP/../../target}/debug/examples/$2
  [ -x "$program" ] || report_die "no $program; cargo build --package $1 --examples makes it"
  echo "$program"
}

# harm_from_the_wire EXAMPLE PORTAL [ARGUMENT]...: peers of crate server's examples do what they can against it for a while, on br0.
# They take processor time that nobody else wants: peers elsewhere would take none.
harm_from_the_wire() {
  local last program first=10.77.0.64 seconds=8
  program=$(suite_example server "$1")
  for last in 64 65 66 67; do
    ip -n "$NET_NS" address replace "${first%.*}.$last/24" dev br0
  done
  "${NET_RUN[@]}" nice -n 19 "$program" "$first" "${@:2}" "$seconds"
}
