# Helpers inside the guest, beside those of the suite nvme-tcp.
# shellcheck shell=bash

# What is copied to file systems.
TREE=/usr/share/zoneinfo/Europe

# mounted DEVICE [MOUNT_ARGUMENT]...: on /mnt/disk.
mounted() {
  mkdir -p /mnt/disk
  mount "${@:2}" "$1" /mnt/disk
}

# made_with_tree DEVICE MKFS...: a file system with the tree, which stays mounted.
made_with_tree() {
  "${@:2}" "$1"
  mounted "$1"
  cp -a "$TREE" /mnt/disk/tree
  sync
}

has_tree() { diff -r --no-dereference "$TREE" "${1:-/mnt/disk}/tree"; }

# checked DEVICE ext4|xfs: the file system, unmounted, has no fault.
checked() {
  case $2 in
    ext4) e2fsck -fn "$1" ;;
    xfs) xfs_repair -n "$1" 2>&1 | tail -n 3 ;;
  esac
}

# namespace_comes NSID: and its device is printed.
namespace_comes() {
  eventually 20 device "$1"
}

connected_again() {
  # shellcheck disable=SC2046
  live $(controllers)
}

# keep_synced: files on /mnt/disk are written and synced, and then noted in /tmp/synced, until that fails.
keep_synced() {
  local number=0
  rm -f /tmp/synced
  trap '' PIPE
  while dd if=/dev/urandom of="/mnt/disk/synced-$number" bs=16k count=1 conv=fsync status=none; do
    md5sum "/mnt/disk/synced-$number" >> /tmp/synced
    number=$((number + 1))
  done
}

# has_synced COUNT: at least so many files.
has_synced() { [ "$(wc -l < /tmp/synced)" -ge "$1" ]; }
