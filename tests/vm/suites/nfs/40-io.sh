# I/O that is verified, and what becomes of it when sessions, shares and the daemon end.
# shellcheck shell=bash

setup() { mount_share; }

teardown() { guest <<< 'umount -f /mnt/db'; }

test_buffered_io_is_verified() {
  guest << 'E'
verified_file buffered /mnt/db/buffered --rw=randwrite --bs=4k --size=8m --end_fsync=1
verified_file large /mnt/db/large --rw=write --bs=1m --size=32m --end_fsync=1
E
}

test_direct_io_is_verified() {
  guest << 'E'
verified_file direct /mnt/db/direct --rw=randwrite --bs=4k --size=2m --direct=1
fio --name=deep --filename=/mnt/db/deep --ioengine=libaio --iodepth=16 --direct=1 --rw=randrw --bs=8k --size=4m --verify=crc32c \
  --verify_fatal=1 --do_verify=1 --randseed=7 --fallocate=none
E
}

test_what_is_done_is_counted() {
  local wrote
  wrote=$(shown db .statistics.write.bytes)
  echo "$wrote bytes written"
  [ "$wrote" -ge $((40 << 20)) ]
  [ "$(shown db .sessions)" -ge 1 ]
  [ "$(shown db .statistics.write.errors)" = 0 ]
}

test_a_session_that_is_ended_under_io_goes_on() {
  local id
  guest << 'E'
rm -f /tmp/through.{out,status,stop}
io_rounds through synced_rounds through /mnt/db/through > /tmp/through.out 2>&1 &
eventually 60 test -s /mnt/db/through
E
  for _ in 1 2 3; do
    for id in $(sessions_of db); do daemon session rm "$id"; done
    sleep 1
  done
  guest <<< 'io_ended through 120'
}

test_a_removed_share_is_stale() {
  guest <<< 'echo content > /mnt/db/file'
  daemon share rm db --force
  guest << 'E'
refused "Stale file handle" ls /mnt/db
umount -f /mnt/db
refused "No such file" mounted db
E
  daemon share create db --client 10.77.0.0/24 --options no_root_squash
  guest <<< 'mounted db; same "$(ls /mnt/db)" "" "files"'
}

test_a_restarted_daemon_is_stale_under_io() {
  guest << 'E'
io_rounds lost synced_rounds lost /mnt/db/lost > /tmp/lost.out 2>&1 &
eventually 60 test -s /mnt/db/lost
E
  peer_crash
  guest << 'E'
eventually 120 test -s /tmp/lost.status
not same "$(cat /tmp/lost.status)" 0 "status"
grep -i "stale" /tmp/lost.out
refused "Stale file handle" ls /mnt/db
umount -f /mnt/db
mounted db
same "$(ls /mnt/db)" "" "files"
echo content > /mnt/db/file
E
}
