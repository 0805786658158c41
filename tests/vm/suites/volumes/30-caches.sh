# Write-back caches in front of files: what was synced survives a killed daemon, though the rest is lost.
# shellcheck shell=bash

setup() {
  needs_modules ext4 xfs
  cached ext4 128M 512
  cached xfs 320M 4096
  offer 1 ext4
  offer 2 xfs
  connect_for_long
}
teardown() { disconnect_host; }

# cached NAME SIZE BLOCK_SIZE: by a cache that is smaller than what the tests write.
cached() {
  daemon volume create "$1-file" --file "$FILES_DIR/$1.img" --size "$2" --block-size "$3"
  daemon volume create "$1" --cache-of "$1-file" --cache-size 8M --cache-mode write-back
}

test_io_is_verified_while_blocks_are_evicted() {
  guest <<< 'verified cache "$(device 2)" --rw=randwrite --bs=16k --iodepth=16 --size=24m'
  shown xfs .cache
  [ "$(shown xfs .cache.evictions)" -gt 0 ]
}

test_synced_files_of_ext4_survive_a_killed_daemon() { synced_files_survive 1 ext4 mkfs.ext4 -q -F; }
test_synced_files_of_xfs_survive_a_killed_daemon() { synced_files_survive 2 xfs mkfs.xfs -q -f; }

# synced_files_survive NSID TYPE MKFS...: the daemon is killed while files are written and synced one by one, beside I/O that is not
# synced. The host's file system goes down with it: one that stays would take what the cache has lost for written.
synced_files_survive() {
  guest NSID="$1" MKFS="${*:3}" << 'E'
# shellcheck disable=SC2086
made_with_tree "$(device "$NSID")" $MKFS
io_started unsynced "$(device "$NSID")" written_for_a_while unsynced /mnt/disk/unsynced
keep_synced > /tmp/keep.out 2>&1 &
eventually 60 has_synced 10
E
  soon is_dirty "$2"
  daemon_kill
  guest << 'E'
disconnect
eventually 60 umount /mnt/disk
E
  daemon_launch
  connect_for_long
  guest NSID="$1" TYPE="$2" << 'E'
mounted "$(device "$NSID")"
has_tree
wc -l < /tmp/synced
md5sum --check --quiet /tmp/synced
umount /mnt/disk
checked "$(device "$NSID")" "$TYPE"
E
}

is_dirty() { [ "$(shown "$1" .cache.dirty_bytes)" -gt 0 ]; }
