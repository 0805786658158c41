# A directory of the daemon's machine under Linux's client: /mnt/files by version 4.2, /mnt/old by 3.
# shellcheck shell=bash

FILES=$DAEMON_DIR/files

setup() {
  mkdir -p "$FILES"
  daemon share create files --kind dir --path "$FILES" --client 10.77.0.0/24 --options no_root_squash
  guest << 'E'
mounted4 4.2 files files
mkdir -p /mnt/old
mount -t nfs -o "vers=3,proto=tcp,port=$PORT,mountport=$PORT,mountproto=tcp,nolock" "$PEER_A:/files" /mnt/old
E
}

teardown() {
  guest <<< 'umount -f /mnt/files /mnt/old'
  daemon share rm files --force
  rm -rf "$FILES"
}

test_a_tree_is_copied_and_the_same() {
  guest << 'E'
for at in files old; do
  cp -a "$TREE" "/mnt/$at/tree"
  umount "/mnt/$at"
  case $at in
    files) mounted4 4.2 files files ;;
    old) mount -t nfs -o "vers=3,proto=tcp,port=$PORT,mountport=$PORT,mountproto=tcp,nolock" "$PEER_A:/files" /mnt/old ;;
  esac
  diff -r --no-dereference "$TREE" "/mnt/$at/tree"
  same "$(find "/mnt/$at/tree" -printf '%m %y %s %P\n' | sort | grep -v ' d ' | md5sum)" \
    "$(find "$TREE" -printf '%m %y %s %P\n' | sort | grep -v ' d ' | md5sum)" "modes, kinds and lengths"
  rm -r "/mnt/$at/tree"
done
refused "no such file" ls /mnt/old/tree
E
  [ -z "$(ls "$FILES")" ]
}

test_what_clients_write_is_in_the_directory() {
  guest << 'E'
echo content > /mnt/files/a
mkdir /mnt/old/d
ln -s /etc/passwd /mnt/old/d/link
chown 1000:1001 /mnt/files/a
chmod 640 /mnt/files/a
E
  [ "$(cat "$FILES/a")" = content ]
  [ "$(stat -c %u:%g:%a "$FILES/a")" = 1000:1001:640 ]
  [ "$(readlink "$FILES/d/link")" = /etc/passwd ]
  echo changed > "$FILES/a"
  guest << 'E'
eventually 70 same "$(cat /mnt/old/a)" changed "what others wrote"
# The link leads to the client's own file, as links of NFS do.
cmp /mnt/old/d/link /etc/passwd
rm -r /mnt/files/*
E
}

test_io_is_verified() {
  guest << 'E'
verified_file buffered /mnt/files/buffered --rw=randwrite --bs=4k --size=4m --end_fsync=1
verified_file large /mnt/files/large --rw=write --bs=1m --size=16m --end_fsync=1
verified_file direct /mnt/old/direct --rw=randwrite --bs=4k --size=1m --direct=1
fio --name=deep --filename=/mnt/files/deep --ioengine=libaio --iodepth=16 --direct=1 --rw=randrw --bs=8k --size=2m --verify=crc32c \
  --verify_fatal=1 --do_verify=1 --randseed=7 --fallocate=none
cmp /mnt/files/large /mnt/old/large
md5sum /mnt/files/large > /tmp/large
E
  [ "$(md5sum < "$FILES/large" | cut -d' ' -f 1)" = "$(guest <<< 'cut -d" " -f 1 /tmp/large')" ]
  guest <<< 'rm /mnt/files/*'
}

test_handles_and_io_outlast_a_killed_daemon() {
  guest << 'E'
echo before > /mnt/old/before
exec 6< /mnt/old/before
io_rounds old synced_rounds old /mnt/old/through > /tmp/old.out 2>&1 &
io_rounds new synced_rounds new /mnt/files/also > /tmp/new.out 2>&1 &
eventually 60 test -s /mnt/old/through
eventually 60 test -s /mnt/files/also
E
  for _ in 1 2; do
    peer_crash
    sleep 3
  done
  guest << 'E'
io_ended old 120
io_ended new 120
same "$(cat /mnt/old/before) $(cat /mnt/files/before)" "before before" "a file from before"
rm /mnt/old/*
E
}

# Linux has a client of its own for version 4.1.
test_locks_outlast_a_killed_daemon() {
  guest << 'E'
locker_up
mounted4 4.1 files other
echo content > /mnt/files/locked
lock_held w 0 10 /mnt/files/locked
not locker try w 0 10 /mnt/other/locked
E
  peer_crash
  guest << 'E'
# Until both are back nobody gets a new lock, and then the first still has its own.
stat -f /mnt/files > /tmp/back
not locker try w 0 10 /mnt/other/locked
locker try w 10 10 /mnt/other/locked
pgrep -x locker
killall locker
eventually 20 locker try w 0 10 /mnt/other/locked
not grep -i "reclaim failed" <(dmesg)
umount /mnt/other
rm /mnt/files/locked
E
}

test_a_missing_directory_is_unavailable_until_it_is_back() {
  guest <<< 'echo content > /mnt/old/file'
  daemon_kill
  mv "$FILES" "$FILES.away"
  daemon_launch
  shown files .problem | tee /dev/stderr | grep -F "does not exist; choose an existing directory"
  [ "$(daemon --json share show db | jq -r .problem)" = null ]
  guest <<< 'refused "stale file handle" cat /mnt/old/file'
  mv "$FILES.away" "$FILES"
  guest << 'E'
eventually 60 test -s /mnt/old/file
same "$(cat /mnt/old/file)" content "the file"
rm /mnt/old/file
E
  [ "$(shown files .problem)" = null ]
}

test_over_rdma() {
  guest << 'E'
rxe_up
modprobe -a rpcrdma
E
  PORTAL_SCHEME=nfs+rdma peer_portal_add "$PEER_A" "$RDMA_PORT"
  guest << 'E'
mounted_rdma files
cp -rL "$TREE" /mnt/rdma/tree
diff -r "$TREE" /mnt/files/tree
verified_file rdma /mnt/rdma/rdma --rw=randwrite --bs=64k --size=2m --direct=1
cmp /mnt/rdma/rdma /mnt/old/rdma
umount /mnt/rdma
mount -t nfs -o "vers=4.2,proto=rdma,port=$RDMA_PORT" "$PEER_A:/files" /mnt/rdma
verified_file rdma4 /mnt/rdma/rdma4 --rw=randwrite --bs=256k --size=4m --direct=1
diff -r "$TREE" /mnt/rdma/tree
rm -r /mnt/rdma/*
umount /mnt/rdma
E
}
