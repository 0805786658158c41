# NFS over RDMA, of version 3 unless a test says otherwise: Linux's client over rdma_rxe, the daemon over RoCEv2 in user space. The same share is mounted over TCP too.
# shellcheck shell=bash

setup() {
  guest << 'E'
rxe_up
modprobe -a rpcrdma
E
  PORTAL_SCHEME=nfs+rdma peer_portal_add "$PEER_A" "$RDMA_PORT"
  guest <<< 'mounted_rdma db; mounted db'
}

teardown() { guest <<< 'umount -f /mnt/rdma /mnt/db'; }

test_a_tree_is_copied_and_seen_over_tcp() {
  guest << 'E'
grep -E '^10.77.0.1:/db /mnt/rdma nfs .*proto=rdma' /proc/mounts
cp -rL "$TREE" /mnt/rdma/tree
diff -r "$TREE" /mnt/rdma/tree
diff -r "$TREE" /mnt/db/tree
ln -s "tree/Berlin" /mnt/rdma/link
same "$(readlink /mnt/db/link)" tree/Berlin "path"
rm -r /mnt/rdma/tree
refused "no such file" ls /mnt/rdma/tree
E
}

test_links_and_long_lists() {
  guest << 'E'
ln -s "$(printf 'p%.0s' {1..1000})" /mnt/rdma/long
mkdir /mnt/rdma/many
seq -f '/mnt/rdma/many/file-%04g' 500 | xargs touch
same "$(readlink /mnt/db/long | wc -c)" 1001 "the path"
umount /mnt/rdma
echo 3 > /proc/sys/vm/drop_caches
mounted_rdma db
same "$(readlink /mnt/rdma/long | wc -c)" 1001 "the path"
same "$(ls /mnt/rdma/many | md5sum)" "$(seq -f 'file-%04g' 500 | md5sum)" "names"
E
}

test_buffered_io_is_verified() {
  guest << 'E'
verified_file buffered /mnt/rdma/buffered --rw=randwrite --bs=4k --size=4m --end_fsync=1
verified_file large /mnt/rdma/large --rw=write --bs=1m --size=16m --end_fsync=1
cmp /mnt/rdma/large /mnt/db/large
E
}

test_direct_io_of_odd_lengths_is_verified() {
  guest << 'E'
verified_file direct /mnt/rdma/direct --rw=randwrite --bs=4k --size=1m --direct=1
verified_file odd /mnt/rdma/odd --rw=randwrite --bs=1001 --size=300300 --direct=1
fio --name=deep --filename=/mnt/rdma/deep --ioengine=libaio --iodepth=16 --direct=1 --rw=randrw --bs=8k --size=4m --verify=crc32c \
  --verify_fatal=1 --do_verify=1 --randseed=7 --fallocate=none
E
}

test_a_session_that_is_ended_under_io_goes_on() {
  local id
  guest << 'E'
rm -f /tmp/through.{out,status,stop}
io_rounds through synced_rounds through /mnt/rdma/through > /tmp/through.out 2>&1 &
eventually 60 test -s /mnt/rdma/through
E
  for id in $(daemon --json session ls | jq -r '.[] | select(.transport == "nfs+rdma") | .id'); do daemon session rm "$id"; done
  sleep 1
  guest <<< 'io_ended through 120'
}

test_version_4_2_is_carried_in_chunks() {
  guest << 'E'
umount /mnt/rdma
mount -t nfs -o "vers=4.2,proto=rdma,port=$RDMA_PORT" "$PEER_A:/db" /mnt/rdma
grep -E '^10.77.0.1:/db /mnt/rdma nfs4 .*vers=4.2,.*proto=rdma' /proc/mounts
cp -rL "$TREE" /mnt/rdma/tree
diff -r "$TREE" /mnt/rdma/tree
diff -r "$TREE" /mnt/db/tree
mkdir /mnt/rdma/many4
seq -f '/mnt/rdma/many4/file-%04g' 300 | xargs touch
ln -s "$(printf 'q%.0s' {1..1000})" /mnt/rdma/long4
verified_file buffered4 /mnt/rdma/buffered4 --rw=randwrite --bs=4k --size=2m --end_fsync=1
verified_file large4 /mnt/rdma/large4 --rw=write --bs=1m --size=8m --end_fsync=1
verified_file odd4 /mnt/rdma/odd4 --rw=randwrite --bs=1001 --size=100100 --direct=1
fio --name=deep4 --filename=/mnt/rdma/deep4 --ioengine=libaio --iodepth=16 --direct=1 --rw=randrw --bs=8k --size=2m --verify=crc32c \
  --verify_fatal=1 --do_verify=1 --randseed=7 --fallocate=none
umount /mnt/rdma
echo 3 > /proc/sys/vm/drop_caches
mount -t nfs -o "vers=4.2,proto=rdma,port=$RDMA_PORT" "$PEER_A:/db" /mnt/rdma
cmp /mnt/rdma/large4 /mnt/db/large4
same "$(readlink /mnt/rdma/long4 | wc -c)" 1001 "the path"
same "$(ls /mnt/rdma/many4 | md5sum)" "$(seq -f 'file-%04g' 300 | md5sum)" "names"
rm -r /mnt/rdma/*4 /mnt/rdma/tree
E
}
