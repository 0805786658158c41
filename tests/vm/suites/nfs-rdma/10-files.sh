# Files of a share that is mounted over RDMA.
# shellcheck shell=bash

setup() { mount_share; }
teardown() { unmount_share; }

test_a_tree_is_copied_and_the_same() {
  guest << 'E'
cp -a "$TREE" /mnt/db/tree
again_by_rdma db
diff -r --no-dereference "$TREE" /mnt/db/tree
rm -r /mnt/db/tree
refused ls /mnt/db/tree
E
}

test_links_and_long_lists() {
  guest << 'E'
cd /mnt/db
ln -s "$(printf 'p%.0s' {1..1000})" long
mkdir many
(cd many && seq -f 'file-%04g' 1500 | xargs touch)
cd /
again_by_rdma db
same "$(readlink /mnt/db/long | wc -c)" 1001 "the path"
same "$(ls /mnt/db/many | md5sum)" "$(seq -f 'file-%04g' 1500 | md5sum)" "names"
rm -r /mnt/db/many /mnt/db/long
E
}

test_io_is_verified() {
  guest << 'E'
verified_file buffered /mnt/db/buffered --rw=randwrite --bs=4k --size=8m --end_fsync=1
verified_file odd /mnt/db/odd --rw=write --bs=12345 --size=4m --end_fsync=1
verified_file large /mnt/db/large --rw=write --bs=1m --size=32m --end_fsync=1
verified_file direct /mnt/db/direct --rw=randwrite --bs=4k --size=2m --direct=1
fio --name=deep --filename=/mnt/db/deep --ioengine=libaio --iodepth=16 --direct=1 --rw=randrw --bs=8k --size=4m --verify=crc32c \
  --verify_fatal=1 --do_verify=1 --randseed=7 --fallocate=none
rm /mnt/db/{buffered,odd,large,direct,deep}
E
}

test_a_share_is_mounted_over_tcp_and_rdma_at_once() {
  guest << 'E'
mkdir -p /mnt/tcp
mount -t nfs -o "vers=3,proto=tcp,port=$PORT,mountport=$PORT,mountproto=tcp,nolock,nosharecache" "$PEER_A:/db" /mnt/tcp
head -c 3000001 /dev/urandom > /mnt/db/file
sync /mnt/db/file
cmp /mnt/db/file /mnt/tcp/file
head -c 100003 /dev/urandom > /mnt/tcp/other
sync /mnt/tcp/other
cmp /mnt/db/other /mnt/tcp/other
rm /mnt/tcp/file /mnt/db/other
umount /mnt/tcp
E
}

test_sessions_are_shown_with_their_transport() {
  daemon --json session ls | jq -e 'map(.transport) | index("nfs+rdma")'
}
