# NFS version 4.0 with Linux's client, over TCP and RDMA. /mnt/db and the directory /mnt/files are mounted as 4.0, and /mnt/other as 4.1, by
# another client of Linux's.
# shellcheck shell=bash

FILES=$DAEMON_DIR/files

setup() {
  mkdir -p "$FILES"
  daemon share create files --kind dir --path "$FILES" --client 10.77.0.0/24 --options no_root_squash
  guest << 'E'
locker_up
mounted4 4.0 db db
mounted4 4.0 files files
mounted4 4.1 db other
E
}

teardown() {
  guest <<< 'umount -f /mnt/db /mnt/files /mnt/other'
  daemon share rm files --force
  rm -rf "$FILES"
}

test_a_tree_is_copied_and_io_is_verified() {
  guest << 'E'
grep -E "^$PEER_A:/db /mnt/db nfs4 .*vers=4.0,.*proto=tcp" /proc/mounts
for at in db files; do
  cp -a "$TREE" "/mnt/$at/tree"
  umount "/mnt/$at"
  mounted4 4.0 "$at" "$at"
  diff -r --no-dereference "$TREE" "/mnt/$at/tree"
  mv "/mnt/$at/tree/Berlin" "/mnt/$at/moved"
  ln "/mnt/$at/moved" "/mnt/$at/hard"
  cmp "/mnt/$at/hard" "$TREE/Berlin"
  verified_file buffered "/mnt/$at/buffered" --rw=randwrite --bs=4k --size=2m --end_fsync=1
  verified_file direct "/mnt/$at/direct" --rw=randrw --bs=64k --size=4m --direct=1
  # Open when it is removed.
  exec 5<> "/mnt/$at/hard"
  rm "/mnt/$at/hard" "/mnt/$at/moved"
  cmp /proc/self/fd/5 "$TREE/Berlin"
  exec 5>&-
done
cmp /mnt/db/direct /mnt/other/direct
rm -r /mnt/db/* /mnt/files/*
refused "No such file" ls /mnt/other/tree
E
}

test_locks_of_two_clients_exclude_each_other() {
  guest << 'E'
echo content > /mnt/db/file
exec 5<> /mnt/db/file 6<> /mnt/other/file
flock -x 5
not flock -s -n 6
flock -u 5
flock -x -n 6
not flock -s -n 5
exec 5>&- 6>&-
lock_held w 10 10 /mnt/db/file
not locker try w 0 0 /mnt/other/file
locker try w 0 10 /mnt/other/file
# Another program of the same client is another lock-owner.
not locker try r 19 1 /mnt/db/file
locker try w 20 0 /mnt/db/file
killall locker
eventually 20 locker try w 0 0 /mnt/other/file
rm /mnt/db/file
E
}

test_over_rdma() {
  guest << 'E'
rxe_up
modprobe -a rpcrdma
E
  PORTAL_SCHEME=nfs+rdma peer_portal_add "$PEER_A" "$RDMA_PORT"
  guest << 'E'
mkdir -p /mnt/rdma
# Linux reaches a server of version 4.0 by one transport at a time.
umount /mnt/db /mnt/files
for share in db files; do
  mount -t nfs -o "vers=4.0,proto=rdma,port=$RDMA_PORT" "$PEER_A:/$share" /mnt/rdma
  grep -E "/mnt/rdma nfs4 .*vers=4.0,.*proto=rdma" /proc/mounts
  cp -rL "$TREE" /mnt/rdma/tree
  diff -r "$TREE" /mnt/rdma/tree
  ln -s "$(printf 'q%.0s' {1..1000})" /mnt/rdma/long
  verified_file direct /mnt/rdma/direct --rw=randwrite --bs=256k --size=4m --direct=1
  lock_held w 0 0 /mnt/rdma/direct
  not locker try w 0 1 /mnt/rdma/direct
  killall locker
  umount /mnt/rdma
  mount -t nfs -o "vers=4.0,proto=rdma,port=$RDMA_PORT" "$PEER_A:/$share" /mnt/rdma
  same "$(readlink /mnt/rdma/long | wc -c)" 1001 "the path"
  diff -r "$TREE" /mnt/rdma/tree
  rm -r /mnt/rdma/*
  umount /mnt/rdma
done
mounted4 4.0 db db
mounted4 4.0 files files
E
}

# The client reclaims what it has open and locked. It does not say when it is done, so nobody gets anything new before the grace
# period of 90 s is over.
test_io_and_locks_outlast_a_killed_daemon() {
  guest << 'E'
mounted4 4.1 files other4
echo content > /mnt/files/locked
lock_held w 0 10 /mnt/files/locked
verified_file through /mnt/files/through --direct=1 --rw=randrw --bs=4k --size=1m --verify_backlog=16 --time_based --runtime=10 \
  > /tmp/through.out 2>&1 &
eventually 60 test -s /mnt/files/through
E
  peer_crash
  guest << 'E'
while pgrep -x fio > /dev/null; do sleep 0.5; done
cat /tmp/through.out
grep -F "err= 0" /tmp/through.out
pgrep -x locker
eventually 120 locker try w 10 10 /mnt/other4/locked
not locker try w 0 10 /mnt/other4/locked
killall locker
eventually 20 locker try w 0 10 /mnt/other4/locked
not grep -i "reclaim failed" <(dmesg)
umount /mnt/other4
rm /mnt/files/*
E
}
