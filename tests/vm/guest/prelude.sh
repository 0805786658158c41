# What every script of a test can use inside the guest.
# shellcheck shell=bash
set -eEuo pipefail
trap 'echo "guest, line $LINENO: failed: $BASH_COMMAND" >&2' ERR

# eventually SECONDS COMMAND...: until it succeeds, or fails at the limit.
eventually() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@" 2> /dev/null; do
    [ "$SECONDS" -lt "$deadline" ] || {
      echo "not within the time: $*" >&2
      return 1
    }
    sleep 0.1
  done
}

# refused COMMAND...: it must fail; its message is shown.
refused() {
  local status=0
  "$@" || status=$?
  [ "$status" != 0 ] || {
    echo "was not refused: $*" >&2
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

# is_busy DEVICE: commands of it are in flight.
is_busy() { awk '{ exit !($9 > 0) }' "/sys/block/${1#/dev/}/stat"; }

# verified NAME DEVICE [FIO_ARGUMENT]...: writes, reads back and compares.
verified() {
  local name=$1 device=$2
  shift 2
  fio --name="$name" --filename="$device" --ioengine=libaio --direct=1 --verify=crc32c --verify_fatal=1 \
    --do_verify=1 --randseed=7 --output-format=json --output="/tmp/$name.json" "$@"
  jq -r '.jobs[] | "\(.jobname): error \(.error), wrote \(.write.io_bytes / 1048576) MiB, read \(.read.io_bytes / 1048576) MiB"' \
    "/tmp/$name.json"
}

# holds_a_tree DEVICE MKFS...: a tree is copied to a new file system, and the same after it was mounted again.
holds_a_tree() {
  local disk=$1 tree
  shift
  "$@" "$disk"
  mkdir -p /mnt/disk
  mount "$disk" /mnt/disk
  cp -a /usr/lib/x86_64-linux-gnu/perl-base /usr/share/zoneinfo/Europe /usr/sbin /mnt/disk/
  sync
  umount /mnt/disk
  echo 3 > /proc/sys/vm/drop_caches
  mount -o ro "$disk" /mnt/disk
  du -sm /mnt/disk
  for tree in lib/x86_64-linux-gnu/perl-base share/zoneinfo/Europe sbin; do
    diff -r --no-dereference "/usr/$tree" "/mnt/disk/${tree##*/}"
  done
  umount /mnt/disk
  case $1 in
    mkfs.ext4) e2fsck -fn "$disk" ;;
    mkfs.xfs) xfs_repair -n "$disk" 2>&1 | tail -n 3 ;;
  esac
}
