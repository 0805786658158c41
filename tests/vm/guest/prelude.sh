# What every script of a test can use inside the guest.
# shellcheck shell=bash
set -eEuo pipefail
trap 'echo "guest, line $LINENO: failed: $BASH_COMMAND" >&2' ERR

# Limits are for a quick machine; emulation takes a multiple.
PATIENCE=6
WAITED_MS=0
# What I/O in the background may do in a second, in each direction. Without a limit it would take all of an emulated processor,
# while the test waits for something else.
IO_RATE_MAX=300

# Sets PROGRESS_MS, a clock that stands still while this machine waits for a processor of its host, which writes to
# /share/waited_ms for how long it did.
progress() {
  local waited_ms=''
  read -r waited_ms < /share/waited_ms || :
  # It may be just being written.
  [ -z "$waited_ms" ] || WAITED_MS=$waited_ms
  PROGRESS_MS=$((${EPOCHREALTIME/[.,]/} / 1000 - WAITED_MS))
}

# eventually SECONDS COMMAND...: until it succeeds, or fails after PATIENCE times as many seconds of progress. It is tried less and
# less often, up to twice a second, since starting programs takes most of an emulated processor.
eventually() {
  local limit_ms tenths=1
  progress
  limit_ms=$((PROGRESS_MS + $1 * 1000 * PATIENCE))
  shift
  until "$@" 2> /dev/null; do
    progress
    [ "$PROGRESS_MS" -lt "$limit_ms" ] || {
      echo "not within the time: $*" >&2
      return 1
    }
    sleep "0.$tenths"
    tenths=$((tenths < 5 ? tenths + 1 : 5))
  done
}

# refused REASON COMMAND...: the command must fail, and its output, which is shown, must match the extended regular expression
# REASON, whose case does not count.
refused() {
  local status=0
  "${@:2}" > /tmp/refused.out 2>&1 || status=$?
  cat /tmp/refused.out
  [ "$status" != 0 ] || {
    echo "was not refused: ${*:2}" >&2
    return 1
  }
  grep -qiE -- "$1" /tmp/refused.out || {
    echo "failed without the reason \"$1\": ${*:2}" >&2
    return 1
  }
}

# not CHECK...: the check must fail. A command that is to be rejected needs a reason: refused.
not() {
  ! "$@" || {
    echo "should not be: $*" >&2
    return 1
  }
}

# same A B [WHAT]
same() {
  [ "$1" = "$2" ] || {
    echo "${3:-value}: '$1', expected '$2'" >&2
    return 1
  }
}

# The size of a block device.
size_mib() { echo $(($(cat "/sys/block/${1#/dev/}/size") / 2048)); }
has_size_mib() { [ "$(size_mib "$1")" = "$2" ]; }

# is_busy DEVICE: commands of it are in flight. Linux 6.1 counts those of an NVMe disk with several paths at its paths alone.
is_busy() {
  local name=${1#/dev/} file files
  files=("/sys/block/$name/stat")
  for file in "/sys/block/${name%n*}"c*"n${name##*n}/stat"; do
    [ ! -e "$file" ] || files+=("$file")
  done
  awk '{ sum += $9 } END { exit !(sum > 0) }' "${files[@]}"
}

# io_started NAME DEVICE COMMAND...: I/O in the background, begun again whenever it ends well, until io_ended; the device is busy.
io_started() {
  local name=$1 device=$2
  shift 2
  rm -f "/tmp/$name".{out,status,stop}
  io_rounds "$name" "$@" > "/tmp/$name.out" 2>&1 &
  eventually 60 is_busy "$device"
}

io_rounds() {
  local name=$1 status=0 is_last=''
  shift
  # Linux's nvme-tcp sends in the context of the submitter, without MSG_NOSIGNAL: a connection that has just broken gives SIGPIPE to a
  # process that only wrote to a disk, and ends it.
  trap '' PIPE
  until [ "$status$is_last" != 0 ]; do
    [ ! -e "/tmp/$name.stop" ] || is_last=yes
    "$@" || status=$?
  done
  echo "$status" > "/tmp/$name.status"
}

# io_ended NAME SECONDS: it has gone well from beginning to end, and once more from here on.
io_ended() {
  touch "/tmp/$1.stop"
  eventually "$2" test -s "/tmp/$1.status" || {
    grep -H . /sys/block/*/inflight /sys/class/nvme/nvme*/state /sys/class/iscsi_session/session*/state || :
    dmesg | tail -n 30
    return 1
  }
  tail -n 40 "/tmp/$1.out"
  same "$(cat "/tmp/$1.status")" 0 "status of $1"
}

# verified NAME DEVICE [FIO_ARGUMENT]...: writes, reads back and compares.
verified() {
  local name=$1 device=$2
  shift 2
  fio --name="$name" --filename="$device" --ioengine=libaio --direct=1 --verify=crc32c --verify_fatal=1 \
    --do_verify=1 --randseed=7 --output-format=json --output="/tmp/$name.json" "$@" || return
  jq -r '.jobs[] | "\(.jobname): error \(.error), wrote \(.write.io_bytes / 1048576) MiB, read \(.read.io_bytes / 1048576) MiB"' \
    "/tmp/$name.json"
}

# verified_for_a_while NAME DEVICE: reads and writes, for io_started.
verified_for_a_while() {
  verified "$@" --rw=randrw --bs=4k --iodepth=16 --size=4m --verify_backlog=64 --time_based --runtime=3 --rate_iops="$IO_RATE_MAX"
}

# timed_for_a_while NAME DEVICE: the same, which also tells its latency to not_delayed.
timed_for_a_while() {
  verified_for_a_while "$@" || return
  latency_us "$1" >> "/tmp/$1.latency"
}

# latency_us NAME: the 90th percentile of reads or writes of the last `verified NAME`, the longer one.
latency_us() { jq '[.jobs[] | (.read, .write) | .clat_ns.percentile["90.000000"] // 0] | max / 1000 | floor' "/tmp/$1.json"; }

# not_delayed NAME DEVICE: in no round of timed_for_a_while NAME beside something was the latency more than LATENCY_FACTOR_MAX times
# that of the same I/O alone. LATENCY_LIMIT_MIN_US is allowed anyway, and I/O alone is measured again if it was too quick.
LATENCY_FACTOR_MAX=8
LATENCY_LIMIT_MIN_US=100000
not_delayed() {
  local beside limit=$LATENCY_LIMIT_MIN_US alone attempt
  beside=$(sort -n "/tmp/$1.latency" | tail -n 1)
  for attempt in 1 2 3 4; do
    echo "90 of 100 commands took up to $beside us, beside what was done; $limit us are allowed"
    [ "$beside" -gt "$limit" ] || return 0
    [ "$attempt" -lt 4 ] || return 1
    verified_for_a_while "$1-alone" "$2"
    alone=$(latency_us "$1-alone")
    [ $((alone * LATENCY_FACTOR_MAX)) -le "$limit" ] || limit=$((alone * LATENCY_FACTOR_MAX))
  done
}

# written_for_a_while NAME DEVICE: writes, for io_started, of which a peer that crashes may lose some.
written_for_a_while() {
  fio --name="$1" --filename="$2" --ioengine=libaio --direct=1 --rw=randwrite --bs=4k --iodepth=16 --size=64m --time_based --runtime=3 \
    --rate_iops="$IO_RATE_MAX"
}

# cut_off DEVICE COMMAND...: the command takes the device away under reads and writes, which end with an error.
cut_off() {
  local device=$1 job
  shift
  fio --name=cut --filename="$device" --ioengine=libaio --direct=1 --rw=randrw --bs=4k --iodepth=32 --size=64m --time_based \
    --runtime=200 --rate_iops="$IO_RATE_MAX" > /tmp/cut.out 2>&1 &
  job=$!
  eventually 60 is_busy "$device"
  "$@"
  not wait "$job"
  grep 'io_u error' /tmp/cut.out
}

# holds_a_tree DEVICE MKFS...: a tree is copied to a new file system, and the same after it was mounted again.
holds_a_tree() {
  local disk=$1 tree
  shift
  "$@" "$disk"
  mkdir -p /mnt/disk
  mount "$disk" /mnt/disk
  cp -a /usr/lib/x86_64-linux-gnu/perl-base /usr/share/zoneinfo/Europe /mnt/disk/
  sync
  umount /mnt/disk
  echo 3 > /proc/sys/vm/drop_caches
  mount -o ro "$disk" /mnt/disk
  du -sm /mnt/disk
  for tree in lib/x86_64-linux-gnu/perl-base share/zoneinfo/Europe; do
    diff -r --no-dereference "/usr/$tree" "/mnt/disk/${tree##*/}"
  done
  umount /mnt/disk
  case $1 in
    mkfs.ext4) e2fsck -fn "$disk" ;;
    mkfs.xfs) xfs_repair -n "$disk" 2>&1 | tail -n 3 ;;
  esac
}
