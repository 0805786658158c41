# NFS versions 4.1 and 4.2 with Linux's client. /mnt/db is mounted as 4.2 and /mnt/other as 4.1: Linux has a client of its own for each
# minor version, so locks and opens of the two meet in the daemon alone.
# shellcheck shell=bash

setup() {
  guest << 'E'
locker_up
mounted4 4.2 db db
mounted4 4.1 db other
E
}

teardown() { guest <<< 'umount -f /mnt/db /mnt/other'; }

test_a_mount_without_a_version_is_4_2() {
  guest << 'E'
mkdir -p /mnt/plain
mount -t nfs "$PEER_A:/db" /mnt/plain
grep -E "^$PEER_A:/db /mnt/plain nfs4 .*vers=4.2,.*proto=tcp" /proc/mounts
umount /mnt/plain
grep -E "^$PEER_A:/db /mnt/other nfs4 .*vers=4.1,.*wsize=262144" /proc/mounts
E
}

test_the_root_lists_the_shares_of_a_client() {
  guest << 'E'
mounted4 4.2 "" all
same "$(ls /mnt/all)" $'db\nsquashed' "shares"
echo content > /mnt/all/db/seen
same "$(cat /mnt/other/seen)" content "the file"
refused "Read-only file system" mkdir /mnt/all/new
refused "Permission denied" touch /mnt/all/squashed/denied
[ "$(stat -c %d /mnt/all)" != "$(stat -c %d /mnt/all/db)" ]
rm /mnt/all/db/seen
umount /mnt/all/db /mnt/all/squashed /mnt/all
refused "No such file" mounted4 4.2 none none
refused "access denied" mounted4 4.2 others others
E
}

test_a_tree_is_copied_and_the_same() {
  guest << 'E'
cp -a "$TREE" /mnt/db/tree
diff -r --no-dereference "$TREE" /mnt/other/tree
same "$(find /mnt/other/tree -printf '%m %y %s %P\n' | sort | grep -v ' d ' | md5sum)" \
  "$(find "$TREE" -printf '%m %y %s %P\n' | sort | grep -v ' d ' | md5sum)" "modes, kinds and lengths"
rm -r /mnt/other/tree
refused "no such file" ls /mnt/db/tree
mkdir /mnt/db/many
(cd /mnt/db/many && seq -f 'file-%04g' 300 | xargs touch)
same "$(ls /mnt/other/many | md5sum)" "$(seq -f 'file-%04g' 300 | md5sum)" "names"
rm -r /mnt/db/many
E
}

test_links_renames_and_open_files() {
  guest << 'E'
cd /mnt/db
echo content > a
ln a b
ln -s a s
mkdir d
mv a d/c
same "$(stat -c %h b) $(readlink s) $(cat d/c)" "2 a content" "links"
mkfifo p
mknod n c 1 3
same "$(stat -c %F p) $(stat -c %t:%T n)" "fifo 1:3" "special files"
exec 5<> b
rm b
echo kept >&5
same "$(head -n 1 /proc/self/fd/5)" kept "a removed open file"
exec 5>&-
refused "cannot overwrite" bash -c 'set -C; : > d/c'
chown 1000:1000 d/c
chmod 640 d/c
same "$(stat -c %u:%g:%a /mnt/other/d/c)" 1000:1000:640 "owner and mode"
touch -d @1234567890 d/c
same "$(stat -c %Y d/c)" 1234567890 "time"
cd /
rm -r /mnt/db/*
E
}

test_io_is_verified() {
  local wrote
  guest << 'E'
verified_file buffered /mnt/db/buffered --rw=randwrite --bs=4k --size=4m --end_fsync=1
verified_file large /mnt/db/large --rw=write --bs=1m --size=16m --end_fsync=1
cmp /mnt/db/large /mnt/other/large
verified_file direct /mnt/other/direct --rw=randwrite --bs=4k --size=1m --direct=1
fio --name=deep --filename=/mnt/db/deep --ioengine=libaio --iodepth=16 --direct=1 --rw=randrw --bs=8k --size=4m --verify=crc32c \
  --verify_fatal=1 --do_verify=1 --randseed=7 --fallocate=none
rm /mnt/db/{buffered,large,direct,deep}
E
  wrote=$(shown db .statistics.write.bytes)
  echo "$wrote bytes written"
  [ "$wrote" -ge $((23 << 20)) ]
}

test_holes_and_copies_of_version_4_2() {
  guest << 'E'
cd /mnt/db
xfs_io -f -c "pwrite -q 1m 64k" -c "truncate 8m" sparse
same "$(xfs_io -c "seek -a -r 0" sparse | tail -n +2 | tr -s '\t ' ' ' | tr '\n' ';')" "HOLE 0;DATA 1048576;HOLE 1114112;" "data and holes"
head -c 3m /dev/urandom > full
xfs_io -c "fpunch 1m 1m" full
[ "$(du -k full | cut -f 1)" -le 2100 ]
same "$(head -c 2m /mnt/other/full | tail -c 1m | tr -d '\0' | wc -c)" 0 "the hole"
xfs_io -f -c "copy_range full" copy
cmp full copy
[ "$(grep -A 99 ' on /mnt/db ' /proc/self/mountstats | awk '$1 == "COPY:" { print $2; exit }')" -ge 1 ]
rm sparse full copy
E
}

test_locks_exclude_other_clients() {
  guest << 'E'
echo content > /mnt/db/file
# All of the file, as flock(2) is over NFS.
exec 5<> /mnt/db/file 6<> /mnt/other/file
flock -x 5
not flock -x -n 6
not flock -s -n 6
flock -s 5
flock -s -n 6
flock -u 6
flock -u 5
flock -x -n 6
not flock -x -n 5
exec 6>&-
flock -x -n 5
exec 5>&-
# Parts of it, as fcntl(2): one program holds what another asks for.
lock_held w 10 10 /mnt/db/file
not locker try w 0 0 /mnt/other/file
locker try w 0 10 /mnt/other/file
locker try w 20 0 /mnt/other/file
not locker try r 19 1 /mnt/other/file
kill %1
wait %1 || :
locker try w 0 0 /mnt/other/file
E
}

test_a_lock_is_waited_for() {
  guest << 'E'
exec 5<> /mnt/db/file
flock -x 5
(flock -x 6 && echo locked > /tmp/locked) 5>&- 6<> /mnt/other/file &
sleep 2
[ ! -e /tmp/locked ]
exec 5>&-
eventually 60 test -s /tmp/locked
wait
rm /mnt/db/file
E
}

test_a_session_that_is_ended_under_io_goes_on() {
  local id
  guest << 'E'
rm -f /tmp/through.{out,status,stop}
io_rounds through synced_rounds through /mnt/db/through > /tmp/through.out 2>&1 &
eventually 60 test -s /mnt/db/through
E
  for _ in 1 2; do
    for id in $(sessions_of db); do daemon session rm "$id"; done
    sleep 1
  done
  guest <<< 'io_ended through 120'
}

test_a_restarted_daemon_is_stale_under_io_and_mounted_again() {
  guest << 'E'
io_rounds lost synced_rounds lost /mnt/db/lost > /tmp/lost.out 2>&1 &
eventually 60 test -s /mnt/db/lost
lock_held w 0 0 /mnt/other/lost
not locker try w 0 0 /mnt/db/lost
E
  peer_crash
  guest << 'E'
eventually 120 test -s /tmp/lost.status
not same "$(cat /tmp/lost.status)" 0 "status"
cat /tmp/lost.out
grep -iE "stale|input/output error" /tmp/lost.out
refused "Stale file handle" ls /mnt/db
killall locker || :
umount -f /mnt/db /mnt/other
mounted4 4.2 db db
mounted4 4.1 db other
same "$(ls /mnt/db)" "" "files"
echo content > /mnt/db/file
flock -x -n /mnt/db/file cat /mnt/other/file
E
}
