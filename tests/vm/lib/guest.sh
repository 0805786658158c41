# Guests: start, run commands in them, end them. A guest's directory $VM_STATE/NAME
# holds its console, its control pipe, and share/, which it sees as /share.
# shellcheck shell=bash

GUEST_START_LIMIT_S=300
GUEST_STARTS_MAX=3
GUEST_STATE_UNUSED_DAYS_MAX=1
GUEST_EXEC_LIMIT_S=600
GUEST_POLL_S=0.05
# How many polls pass until the guest is told again for how long it has waited for a processor.
GUEST_POLLS_PER_REPORT=10
# Limits count a guest's progress (guest_progress_ms). However little it makes, this multiple of a limit ends the wait.
GUEST_LIMIT_SCALE_MAX=8
# Five-level page tables only cost time under emulation, and so do string instructions that move bytes, which kernels choose for
# copies if a processor says that they are fast.
GUEST_CPU=max,la57=off,erms=off
# Kernels' time limits, such as those of RDMA's retries and of keep-alives, are in seconds of the wall clock, and no test can
# scale them. So a run's guests and its daemon come before what else a busy host does. Each has a session of its own, since Linux
# shares processors among sessions first (sched_autogroup_enabled).
RUN_NICE=-10
RUN_FIRST=(setsid nice -n "$RUN_NICE")
# The taps of guests that were started.
GUEST_TAPS=()

# guest_start NAME [-m MEBIBYTES] [-c CPUS] [-n BRIDGE=ADDRESS/LENGTH]... [-d HOST_DIR] [-i] [-q QEMU_ARGUMENT]... [-p SCRIPT]
#   -n  a network card on that bridge; eth0, eth1 … in the order given
#   -d  a directory of the host, the guest's /host
#   -i  time counts the guest's instructions (2 ns each, one CPU): measurements inside
#       one guest repeat, whatever else the host does
#   -p  what prepares the guest, before anything else runs in it
# The first start boots and prepares the guest, and saves it. Further starts with the same arguments restore it. With -i, each boots.
guest_start() {
  local name=$1 memory_mib=1024 cpus=2 host_dir='' preparation=: nics=() extra=() option OPTIND=1
  local accel=(-accel "tcg,thread=multi,tb-size=512") clock=host state=''
  shift
  while getopts m:c:n:d:iq:p: option; do
    case $option in
      m) memory_mib=$OPTARG ;;
      c) cpus=$OPTARG ;;
      n) nics+=("$OPTARG") ;;
      d) host_dir=$OPTARG ;;
      i) clock=instructions cpus=1 accel=(-accel "tcg,thread=single,tb-size=512" -icount "shift=1,sleep=off") ;;
      q) extra+=("$OPTARG") ;;
      p) preparation=$OPTARG ;;
      *) report_die "guest_start: unknown option" ;;
    esac
  done
  ! guest_alive "$name" || report_die "guest $name runs already"
  guest_nics "$name" "${nics[@]}"
  extra+=("${accel[@]}" -smp "$cpus" -m "$memory_mib"
    -object "memory-backend-memfd,id=memory,size=${memory_mib}M,share=on"
    -append "$(guest_kernel_arguments "$name" "${host_dir:+yes}")")
  [ "$clock" = instructions ] || state=$VM_DIR/image/state-$name-$(guest_key "$preparation" "${extra[@]}")
  [ -z "$host_dir" ] || extra+=(-virtfs "$(guest_9p host "$host_dir")")
  extra+=("${GUEST_NIC_ARGUMENTS[@]}")
  local starts=1
  until guest_starts_well "$name" "$clock" "$state" "$preparation" "${extra[@]}"; do
    [ "$starts" -lt "$GUEST_STARTS_MAX" ] || report_die "guest $name does not start well in $starts tries"
    report_note "starting guest $name again"
    guest_stop "$name"
    [ -z "$state" ] || rm -f "$state"
    starts=$((starts + 1))
  done
}

# guest_key WORD...: a hash over what a saved guest depends on. It holds for one boot of the host, since a guest's clock is calibrated
# to the host's processor.
guest_key() {
  {
    echo "$IMAGE_INITRD" "$@"
    cat "$VM_TOP/lib/guest.sh" /proc/sys/kernel/random/boot_id
    qemu-system-x86_64 --version
  } | sha256sum | cut -c 1-16
}

# guest_starts_well NAME host|instructions STATE PREPARATION QEMU_ARGUMENT...: boots if STATE is empty, restores that file otherwise,
# after it was made if it does not exist.
guest_starts_well() {
  local name=$1 clock=$2 state=$3 preparation=$4 lock is_saved=1
  shift 4
  if [ -z "$state" ]; then
    guest_boots_well "$name" "$clock" "$preparation" "$@"
    return
  fi
  exec {lock}>"$state.lock"
  flock "$lock"
  [ -s "$state" ] || guest_save "$name" "$state" "$preparation" "$@" || is_saved=''
  exec {lock}>&-
  [ -n "$is_saved" ] || return 1
  touch "$state"
  guest_launch "$name" host "$@" -incoming "exec:cat '$state'"
  guest_wait_up "$name"
}

# guest_boots_well NAME host|instructions PREPARATION QEMU_ARGUMENT...
guest_boots_well() {
  local name=$1 clock=$2 preparation=$3
  guest_launch "$name" "$clock" "${@:4}"
  guest_wait_up "$name" || return
  [ "$clock" = instructions ] || guest_clock_is_right "$name" || {
    report_note "the clock of guest $name is wrong"
    return 1
  }
  guest_exec "$name" <<< "$preparation"
}

# guest_save NAME STATE PREPARATION QEMU_ARGUMENT...: boots it, writes it to the file, and ends it.
guest_save() {
  local name=$1 state=$2 dir=$VM_STATE/$1
  find "$VM_DIR/image" -name 'state-*' -mtime "+$GUEST_STATE_UNUSED_DAYS_MAX" -delete
  guest_boots_well "$name" host "${@:3}" || return
  guest_limit_start "$name" "$GUEST_EXEC_LIMIT_S"
  echo unshare 1<> "$dir/control.in"
  guest_until "$name" grep -q 'init: /share is unmounted' "$dir/console" || return
  cat "$dir/monitor.out" > "$dir/monitor.log" &
  guest_until "$name" test -s "$dir/monitor.log" || return
  printf '%s\n' 'migrate_set_parameter max-bandwidth 100G' "migrate \"exec:cat > '$dir/state'\"" 'info migrate' quit 1<> "$dir/monitor.in"
  guest_until "$name" false || :   # QEMU quits
  guest_stop "$name"
  grep -q 'Migration status: completed' "$dir/monitor.log" || {
    report_note "guest $name was not saved:"
    tail -n 5 "$dir/monitor.log" >&2
    return 1
  }
  mv "$dir/state" "$state"
}

# guest_until NAME COMMAND...: fails if the guest ends, or the limit passes, before it succeeds.
guest_until() {
  until "${@:2}"; do
    if ! guest_alive "$1" || guest_limit_passed; then return 1; fi
    sleep 0.1
  done
}

# guest_launch NAME host|instructions QEMU_ARGUMENT...: a process of QEMU.
guest_launch() {
  local name=$1 clock=$2 dir=$VM_STATE/$1
  shift 2
  rm -rf "$dir"
  mkdir -p "$dir/share"
  mkfifo "$dir"/{control,monitor}.{in,out}
  echo "$clock" > "$dir/clock"
  # A guest of a test run never outlives it, however that ends.
  local owner=()
  [ -z "${GUEST_DIES_WITH_OWNER:-}" ] || owner=(setpriv --pdeathsig KILL)
  # The device vmgenid tells the guest that it was restored; Linux seeds its random numbers anew then.
  "${NET_RUN[@]}" "${RUN_FIRST[@]}" "${owner[@]}" qemu-system-x86_64 \
    -nodefaults -no-user-config -no-reboot -display none \
    -M q35,memory-backend=memory -cpu "$GUEST_CPU" \
    -kernel "$IMAGE_VMLINUZ" -initrd "$IMAGE_INITRD" \
    -drive "if=none,id=root,file=$IMAGE_ROOT,format=raw,readonly=on" -device virtio-blk-pci,drive=root \
    -drive "if=none,id=modules,file=$IMAGE_MODULES,format=raw,readonly=on" -device virtio-blk-pci,drive=modules \
    -virtfs "$(guest_9p share "$dir/share")" \
    -device virtio-rng-pci -device vmgenid,guid=auto -serial "file:$dir/console" \
    -chardev "pipe,id=monitor,path=$dir/monitor" -mon chardev=monitor,mode=readline \
    -device virtio-serial-pci -chardev "pipe,id=control,path=$dir/control" \
    -device virtserialport,chardev=control,name=control \
    "$@" > "$dir/qemu.log" 2>&1 < /dev/null &
  echo $! > "$dir/pid"
  session_first $!
}

# session_first PID: the session that this process of RUN_FIRST's is beginning.
session_first() {
  local session='' tries=0
  until [ "$session" = "$1" ] || [ "$tries" = 20 ]; do
    read -r _ _ _ _ _ session _ < "/proc/$1/stat" || return 0
    tries=$((tries + 1))
    sleep 0.01
  done
  { echo "$RUN_NICE" > "/proc/$1/autogroup"; } 2> /dev/null || :
}

# On a busy host the kernel can misjudge the frequency of the emulated time-stamp counter;
# its seconds then pass much too fast.
guest_clock_is_right() {
  local before_ms after_ms seconds
  before_ms=$(date +%s%3N)
  seconds=$(guest_exec "$1" -t 120 <<< 'read -r a _ < /proc/uptime; sleep 1; read -r b _ < /proc/uptime; echo "$a $b"')
  after_ms=$(date +%s%3N)
  awk -v span_ms="$((after_ms - before_ms))" '{ exit !(($2 - $1) * 1000 < 1.2 * span_ms) }' <<< "$seconds"
}

guest_9p() { echo "local,path=$2,mount_tag=$1,security_model=none,multidevs=remap"; }

guest_kernel_arguments() {
  local quiet="console=ttyS0 quiet loglevel=4 panic=-1"
  local quick="mitigations=off tsc=reliable random.trust_cpu=on cryptomgr.notests"
  # A guest on a busy host is slow; that alone is no fault of its kernel.
  local patient="nowatchdog rcupdate.rcu_cpu_stall_suppress=1 no_timer_check"
  echo "$quiet $quick $patient net.ifnames=0 vm_name=$1 vm_host_dir=${2:-no} vm_net=$GUEST_NIC_ADDRESSES"
}

# Sets GUEST_NIC_ARGUMENTS and GUEST_NIC_ADDRESSES. The same name gets the same MACs.
guest_nics() {
  local name=$1 nic tap hash index=0
  shift
  GUEST_NIC_ARGUMENTS=() GUEST_NIC_ADDRESSES=''
  hash=$(cksum <<< "$name" | cut -d ' ' -f 1)
  for nic; do
    tap=$(guest_tap "$name" "$index")
    net_tap "$tap" "${nic%%=*}"
    GUEST_TAPS+=("$tap")
    GUEST_NIC_ARGUMENTS+=(
      -netdev "tap,id=nic$index,ifname=$tap,script=no,downscript=no"
      -device "virtio-net-pci,netdev=nic$index,romfile=,mac=$(printf '52:54:00:%02x:%02x:%02x' \
        $((hash >> 8 & 255)) $((hash & 255)) "$index")")
    GUEST_NIC_ADDRESSES+=${GUEST_NIC_ADDRESSES:+,}${nic#*=}@$NET_MTU
    index=$((index + 1))
  done
}

# The tap of a guest's card, by its number.
guest_tap() { echo "tap-${1:0:8}-$2"; }

# Waits until the guest has mounted /share. A kernel that patches itself while it is emulated can fault on the way up.
guest_wait_up() {
  local dir=$VM_STATE/$1 control is_up=''
  # Open until the guest has read it, since QEMU may not have opened it yet.
  exec {control}<> "$dir/control.in"
  echo "share $(date +%s)" >&"$control"
  guest_limit_start "$1" "$GUEST_START_LIMIT_S"
  ! guest_until "$1" test -s "$dir/share/ready" || is_up=1
  exec {control}>&-
  [ -z "$is_up" ] || return 0
  tail -n 5 "$dir/console" "$dir/qemu.log" >&2 || :
  report_note "guest $1 ended before it was up, or was not up after $GUEST_START_LIMIT_S s"
  return 1
}

guest_alive() { [ -f "$VM_STATE/$1/pid" ] && kill -0 "$(< "$VM_STATE/$1/pid")" 2> /dev/null; }

# guest_waited_ms NAME: for how long the host has kept the guest from running since it was started: what its threads have
# waited for a processor, by the one that waited longest. 0 if the guest has ended.
guest_waited_ms() {
  local file waited_ns longest_ns=0
  [ -f "$VM_STATE/$1/pid" ] || {
    echo 0
    return
  }
  for file in /proc/"$(< "$VM_STATE/$1/pid")"/task/*/schedstat; do
    read -r _ waited_ns _ < "$file" || continue
    [ "$waited_ns" -le "$longest_ns" ] || longest_ns=$waited_ns
  done 2> /dev/null
  echo $((longest_ns / 1000000))
}

# guest_tell_waits NAME: to `progress` in the guest. A clock that counts instructions stands still by itself.
guest_tell_waits() {
  case $(< "$VM_STATE/$1/clock") in
    instructions) echo 0 ;;
    *) guest_waited_ms "$1" ;;
  esac > "$VM_STATE/$1/share/waited_ms"
}

# guest_progress_ms NAME: a clock that stands still while the guest waits for a processor of the host. Limits count by it, so that
# a busy host, where everything takes longer, does not fail a test.
guest_progress_ms() { echo $((${EPOCHREALTIME/[.,]/} / 1000 - $(guest_waited_ms "$1"))); }

# guest_limit_start NAME SECONDS; guest_limit_passed: the guest has made SECONDS of progress since, or GUEST_LIMIT_SCALE_MAX times
# as many have passed. A process has one limit at a time.
guest_limit_start() {
  GUEST_LIMITED=$1
  GUEST_LIMIT_MS=$(($(guest_progress_ms "$1") + $2 * 1000))
  GUEST_LIMIT_AT_LAST_S=$((SECONDS + $2 * GUEST_LIMIT_SCALE_MAX))
}
guest_limit_passed() {
  [ "$SECONDS" -ge "$GUEST_LIMIT_AT_LAST_S" ] || [ "$(guest_progress_ms "$GUEST_LIMITED")" -ge "$GUEST_LIMIT_MS" ]
}

# guest_exec NAME [-t SECONDS]: runs the script on stdin in the guest, passes on its
# output as it comes, and returns its exit status; 124 when the limit passed. The guest ends the script itself
# only at GUEST_LIMIT_SCALE_MAX times the limit.
guest_exec() {
  local dir=$VM_STATE/$1 name=$1 limit_s=$GUEST_EXEC_LIMIT_S id output is_done='' polls=0
  shift
  [ "${1:-}" != -t ] || limit_s=$2
  id=$BASHPID.$RANDOM
  cat > "$dir/share/$id.sh"
  : > "$dir/share/$id.out"
  exec {output}< "$dir/share/$id.out"
  guest_tell_waits "$name"
  local GUEST_LIMITED GUEST_LIMIT_MS GUEST_LIMIT_AT_LAST_S
  guest_limit_start "$name" "$limit_s"
  echo "$id $((limit_s * GUEST_LIMIT_SCALE_MAX))" 1<> "$dir/control.in"   # read-write, so that a dead guest does not block
  while :; do
    [ ! -e "$dir/share/$id.status" ] || is_done=1
    cat <&"$output"
    [ -z "$is_done" ] || break
    guest_alive "$name" || {
      echo "guest $name ended" >&2
      return 125
    }
    polls=$((polls + 1))
    if [ $((polls % GUEST_POLLS_PER_REPORT)) = 0 ]; then
      guest_tell_waits "$name"
      ! guest_limit_passed || {
        echo "guest $name is not done within the limit of $limit_s s" >&2
        return 124
      }
    fi
    sleep "$GUEST_POLL_S"
  done
  exec {output}<&-
  return "$(< "$dir/share/$id.status")"
}

guest_stop() {
  local pid=$VM_STATE/$1/pid
  guest_alive "$1" || return 0
  kill "$(< "$pid")" 2> /dev/null || :
  local tries=0
  while guest_alive "$1"; do
    tries=$((tries + 1))
    [ "$tries" -lt 100 ] || kill -KILL "$(< "$pid")" 2> /dev/null || :
    sleep 0.05
  done
  rm -f "$pid"
}

# Kernel faults on the console of a guest; succeeds when there are some.
guest_faults() {
  grep -E 'BUG:|WARNING:|Oops|Kernel panic|blocked for more than|rcu.*stall' "$VM_STATE/$1/console"
}
