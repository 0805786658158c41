# File systems on a namespace: a tree copied, remounted and compared.
# shellcheck shell=bash

setup() { connect_host; }
teardown() { disconnect_host; }

test_ext4_holds_a_tree() { filesystem 1 mkfs.ext4 -q -F; }
test_xfs_holds_a_tree() { filesystem 2 mkfs.xfs -q -f; }

# filesystem NSID MKFS...
filesystem() {
  local nsid=$1
  shift
  guest NSID="$nsid" MKFS="$*" << 'E'
disk=$(device "$NSID")
$MKFS "$disk"
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
case $MKFS in
  mkfs.ext4*) e2fsck -fn "$disk" ;;
  mkfs.xfs*) xfs_repair -n "$disk" 2>&1 | tail -n 3 ;;
esac
E
}
