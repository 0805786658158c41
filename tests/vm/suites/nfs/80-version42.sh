# What only version 4.2 has, with Linux's client: space, clones and extended attributes. /mnt/db is a share in memory, /mnt/files a directory of
# the daemon's machine.
# shellcheck shell=bash

FILES=$DAEMON_DIR/files42

setup() {
  mkdir -p "$FILES"
  daemon share create files42 --kind dir --path "$FILES" --client 10.77.0.0/24 --options no_root_squash
  guest << 'E'
xattr_up
mounted4 4.2 db db
mounted4 4.2 files42 files
E
}

teardown() {
  guest <<< 'umount -f /mnt/db /mnt/files'
  daemon share rm files42 --force
  rm -rf "$FILES"
}

test_space_is_allocated() {
  guest << 'E'
for at in db files; do
  cd "/mnt/$at"
  echo content > full
  xfs_io -c "falloc 0 8m" full
  same "$(stat -c %s full)" 8388608 "length"
  [ "$(du -k full | cut -f 1)" -ge 8192 ]
  same "$(head -c 7 full) $(tail -c 1m full | tr -d '\0' | wc -c)" "content 0" "contents"
  xfs_io -c "fpunch 1m 6m" full
  [ "$(du -k full | cut -f 1)" -le 2100 ]
  rm full
  cd /
  [ "$(grep -A 99 " on /mnt/$at " /proc/self/mountstats | awk '$1 == "ALLOCATE:" { print $2; exit }')" -ge 1 ]
done
refused "No space left" xfs_io -f -c "falloc 0 4t" /mnt/db/huge
same "$(stat -c %s /mnt/db/huge)" 0 "length"
rm /mnt/db/huge
E
}

test_files_in_memory_are_cloned() {
  guest << 'E'
cd /mnt/db
head -c 3000001 /dev/urandom > from
xfs_io -c "fpunch 1m 1m" from
cp --reflink=always from clone
cmp from clone
same "$(stat -c %b clone)" "$(stat -c %b from)" "blocks"
md5sum from > /tmp/from
xfs_io -c "pwrite -q 0 1m" clone
md5sum -c /tmp/from
xfs_io -f -c "reflink from 2m 4096 64k" part
cmp -n 65536 -i 2097152:4096 from part
same "$(stat -c %s part)" 69632 "length"
# xfs_io fails with status 0.
xfs_io -c "reflink from 1 0 4096" part 2>&1 | grep "Invalid argument"
[ "$(grep -A 99 ' on /mnt/db ' /proc/self/mountstats | awk '$1 == "CLONE:" { print $2; exit }')" -ge 2 ]
rm from clone part
E
}

# The machine's own file system decides whether a directory clones; otherwise clients are told, and copy.
test_files_in_a_directory_are_cloned_or_copied() {
  local can_clone=no
  head -c 3000001 /dev/urandom > "$FILES/from"
  if cp --reflink=always "$FILES/from" "$FILES/probe"; then can_clone=yes; fi
  echo "the file system clones: $can_clone"
  if [ "$can_clone" = yes ]; then
    guest <<< 'cd /mnt/files; cp --reflink=always from clone; cmp from clone'
  else
    guest <<< 'cd /mnt/files; refused "not supported" cp --reflink=always from clone'
  fi
  guest << 'E'
cp --reflink=auto /mnt/files/from /mnt/files/copied
cmp /mnt/files/from /mnt/files/copied
E
  cmp "$FILES/from" "$FILES/copied"
  rm -f "${FILES:?}"/*
}

test_extended_attributes() {
  guest << 'E'
for at in db files; do
  mkdir "/mnt/$at/d"
  echo content > "/mnt/$at/d/file"
  cd "/mnt/$at/d"
  for target in file .; do
    same "$(xattr ls "$target")" "" "names"
    xattr set "$target" user.one 1
    xattr set "$target" user.two "a longer value"
    same "$(xattr get "$target" user.two)" "a longer value" "value"
    same "$(xattr ls "$target" | sort)" $'user.one\nuser.two' "names"
    refused "File exists" xattr create "$target" user.one 2
    xattr replace "$target" user.one 3
    refused "No data available" xattr replace "$target" user.three 3
    refused "No data available" xattr get "$target" user.three
    xattr rm "$target" user.two
    refused "No data available" xattr rm "$target" user.two
    refused "not supported" xattr set "$target" trusted.one 1
  done
  refused "not supported" xattr get file system.nfs4_acl
  refused "Numerical result out of range" xattr set file "user.$(printf 'n%.0s' {1..251})" 1
  xattr set file "user.$(printf 'n%.0s' {1..250})" 1
  xattr fill file user.large 2000
  for number in $(seq 20); do xattr set file "user.name-$number" "$number"; done
  chmod 700 file
  refused "Permission denied" as_user xattr set file user.one 4
  refused "Permission denied" as_user xattr get file user.one
  cd /
done
umount /mnt/db /mnt/files
echo 3 > /proc/sys/vm/drop_caches
mounted4 4.2 db db
mounted4 4.2 files42 files
for at in db files; do
  same "$(xattr get "/mnt/$at/d/file" user.one)" 3 "value"
  same "$(xattr ls "/mnt/$at/d/file" | wc -l)" 23 "names"
  same "$(xattr get "/mnt/$at/d/file" user.large | wc -c)" 2001 "length"
done
xattr fill /mnt/db/d/file user.large 65536
same "$(xattr get /mnt/db/d/file user.large | wc -c)" 65537 "length"
E
  python3 -c 'import os, sys; assert os.getxattr(sys.argv[1], "user.one") == b"3"' "$FILES/d/file"
}

test_extended_attributes_of_a_directory_outlast_a_killed_daemon() {
  guest << 'E'
echo content > /mnt/files/kept
xattr set /mnt/files/kept user.one 1
E
  peer_crash
  guest << 'E'
echo 3 > /proc/sys/vm/drop_caches
same "$(xattr get /mnt/files/kept user.one)" 1 "value"
rm /mnt/files/kept
umount -f /mnt/db
mounted4 4.2 db db
E
}

test_extended_attributes_over_rdma() {
  guest << 'E'
rxe_up
modprobe -a rpcrdma
E
  PORTAL_SCHEME=nfs+rdma peer_portal_add "$PEER_A" "$RDMA_PORT"
  guest << 'E'
mkdir -p /mnt/rdma
for share in db files42; do
  mount -t nfs -o "vers=4.2,proto=rdma,port=$RDMA_PORT" "$PEER_A:/$share" /mnt/rdma
  echo content > /mnt/rdma/rdma
  xattr set /mnt/rdma/rdma user.one 1
  xattr fill /mnt/rdma/rdma user.large 2000
  for number in $(seq 20); do xattr set /mnt/rdma/rdma "user.name-$number" "$number"; done
  [ "$share" != db ] || xattr fill /mnt/rdma/rdma user.huge 60000
  xfs_io -c "falloc 0 2m" /mnt/rdma/rdma
  umount /mnt/rdma
  echo 3 > /proc/sys/vm/drop_caches
  mount -t nfs -o "vers=4.2,proto=rdma,port=$RDMA_PORT" "$PEER_A:/$share" /mnt/rdma
  same "$(xattr get /mnt/rdma/rdma user.one)" 1 "value"
  same "$(xattr get /mnt/rdma/rdma user.large | wc -c)" 2001 "length"
  [ "$share" != db ] || same "$(xattr get /mnt/rdma/rdma user.huge | wc -c)" 60001 "length"
  [ "$(xattr ls /mnt/rdma/rdma | wc -l)" -ge 22 ]
  rm /mnt/rdma/rdma
  umount /mnt/rdma
done
E
}
