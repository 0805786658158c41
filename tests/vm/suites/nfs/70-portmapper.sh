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
