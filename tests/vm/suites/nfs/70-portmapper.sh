# Ports that a portmapper tells: a daemon and an rpcbind with a /run of their own, beside the one of the other tests.
# shellcheck shell=bash

# Where the other daemon keeps what it needs.
other_folder() { echo "$VM_STATE/portmapper"; }

setup() {
  local folder
  folder=$(other_folder)
  mkdir -p "$folder"
  "${NET_RUN[@]}" unshare --mount bash -c 'mount -t tmpfs none /run; rpcbind -f & echo $! > "$1/rpcbind"; shift; exec "$@"' _ "$folder" \
    "$RAMPORT" serve --socket "$folder/socket" --state "$folder/state" --memory 256M --nfs "$PEER_A:20490" \
    >> "$folder/log" 2>&1 < /dev/null &
  echo $! > "$folder/pid"
  local start=$SECONDS
  until other share create found --client 10.77.0.0/24 --options no_root_squash; do
    [ $((SECONDS - start)) -lt 20 ] || return 1
    sleep 0.2
  done
}

teardown() { kill "$(cat "$(other_folder)/pid")" "$(cat "$(other_folder)/rpcbind")"; }

other() { "$RAMPORT" --socket "$(other_folder)/socket" "$@"; }

test_clients_ask_for_the_ports() {
  guest << 'E'
begin=$SECONDS
until showmount --no-headers -e "$PEER_A" > /tmp/exports; do
  [ $((SECONDS - begin)) -lt 40 ]
  sleep 1
done
same "$(tr -s ' ' < /tmp/exports)" "/found 10.77.0.0/24" "exports"
mkdir -p /mnt/found
mount -t nfs -o vers=3,proto=tcp,mountproto=tcp,nolock "$PEER_A:/found" /mnt/found
echo content > /mnt/found/file
same "$(cat /mnt/found/file)" content "a file"
grep " /mnt/found nfs .*port=20490\|,mountport=20490," /proc/mounts
umount /mnt/found
E
  [ "$(other --json share show found | jq .files)" = 1 ]
}

# Linux has a client of its own for each mount with nosharecache, and for version 4, so locks meet in the daemon alone.
test_locks_of_version_3_exclude_each_other_and_those_of_version_4() {
  guest << 'E'
locker_up
locks_up
for name in found other; do
  mkdir -p /mnt/$name
  mount -t nfs -o vers=3,proto=tcp,mountproto=tcp,nosharecache "$PEER_A:/found" /mnt/$name
done
mkdir -p /mnt/four
mount -t nfs -o vers=4.2,proto=tcp,port=20490 "$PEER_A:/found" /mnt/four
echo content > /mnt/found/locked
for file in /mnt/other/locked /mnt/four/locked; do
  exec 5<> /mnt/found/locked 6<> $file
  flock -x 5
  not flock -s -n 6
  flock -s 5
  flock -s -n 6
  not flock -x -n 6
  flock -u 5
  flock -x -n 6
  not flock -s -n 5
  exec 5>&- 6>&-
  # The program that holds a part is killed.
  lock_held w 10 10 /mnt/found/locked
  not locker try w 0 0 $file
  locker try w 0 10 $file
  kill -KILL $!
  wait $! || :
  locker try w 0 0 $file
done
E
}

# Without a callback Linux asks again after 30 s.
test_a_lock_of_version_3_is_granted_by_a_callback() {
  guest << 'E'
for holder in found four; do
  exec 5<> /mnt/$holder/locked
  flock -x 5
  (flock -x 6 && echo locked > /tmp/locked) 5>&- 6<> /mnt/other/locked &
  sleep 2
  [ ! -e /tmp/locked ]
  exec 5>&-
  eventually 12 test -s /tmp/locked
  wait $!
  rm /tmp/locked
done
umount /mnt/found /mnt/other /mnt/four
E
}
