# Helpers inside the guest.
# shellcheck shell=bash disable=SC2034

# What is copied to shares.
TREE=/usr/share/zoneinfo/Europe
# The user of tests that may not do everything.
USER_ID=1000

# mounted SHARE [OPTION,...]: on /mnt/SHARE.
mounted() {
  mkdir -p "/mnt/$1"
  mount -t nfs -o "vers=3,proto=tcp,port=$PORT,mountport=$PORT,mountproto=tcp,nolock${2:+,$2}" "$PEER_A:/$1" "/mnt/$1"
}

# mounted_rdma SHARE: on /mnt/rdma, over RDMA.
mounted_rdma() {
  mkdir -p /mnt/rdma
  mount -t nfs -o "vers=3,proto=rdma,port=$RDMA_PORT,mountport=$PORT,mountproto=tcp,nolock" "$PEER_A:/$1" /mnt/rdma
}

# again SHARE [OPTION,...]: mounted anew, so that nothing is cached.
again() {
  umount "/mnt/$1"
  echo 3 > /proc/sys/vm/drop_caches
  mounted "$@"
}

# as_user COMMAND...: as one who owns nothing here.
as_user() { setpriv --reuid "$USER_ID" --regid "$USER_ID" --clear-groups "$@"; }

# fails_with WORDS COMMAND...: the command fails and says so.
fails_with() {
  refused "${@:2}" 2> /tmp/failed || return
  cat /tmp/failed
  grep -F "$1" /tmp/failed
}

# verified_file NAME FILE [FIO_ARGUMENT]...: writes, reads back and compares, through the page cache unless --direct=1.
verified_file() {
  fio --name="$1" --filename="$2" --ioengine=psync --verify=crc32c --verify_fatal=1 --do_verify=1 --randseed=7 --fallocate=none \
    "${@:3}"
}

# synced_rounds NAME FILE: for io_rounds, until a round fails.
synced_rounds() { verified_file "$1" "$2" --direct=1 --rw=randrw --bs=4k --size=1m --verify_backlog=16 --time_based --runtime=2; }
