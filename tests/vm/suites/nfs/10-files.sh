# Files, folders and links of a share under Linux's client.
# shellcheck shell=bash

setup() { mount_share; }
teardown() { unmount_share; }

test_a_tree_is_copied_and_the_same() {
  guest << 'E'
cp -a "$TREE" /mnt/db/tree
again db
diff -r --no-dereference "$TREE" /mnt/db/tree
same "$(find /mnt/db/tree -printf '%m %y %s %P\n' | sort | grep -v ' d ' | md5sum)" \
  "$(find "$TREE" -printf '%m %y %s %P\n' | sort | grep -v ' d ' | md5sum)" "modes, kinds and lengths"
rm -r /mnt/db/tree
refused "no such file" ls /mnt/db/tree
E
  [ "$(shown db .files)" = 0 ]
}

test_links_and_renames() {
  guest << 'E'
cd /mnt/db
echo content > a
ln a b
same "$(stat -c %h a) $(stat -c %i a)" "2 $(stat -c %i b)" "links"
ln -s a s
same "$(readlink s) $(cat s)" "a content" "symbolic link"
mkdir d
mv a d/c
refused "no such file" cat s
mv d e
same "$(cat e/c b)" $'content\ncontent' "renamed"
echo other > f
mv f e/c
same "$(cat e/c)" other "replaced"
same "$(stat -c %h b)" 1 "links after one was replaced"
refused "not empty" rmdir e
refused "subdirectory of itself" mv e e/below
mkfifo p
mknod n c 1 3
same "$(stat -c %F p) $(stat -c %t:%T n)" "fifo 1:3" "special files"
# What is open is there until it is closed, though it was removed.
exec 5<> b
rm b
echo kept >&5
same "$(cat /proc/self/fd/5)" kept "a removed open file" || :
exec 5>&-
cd /
rm -r /mnt/db/*
E
}

test_sparse_files_and_lengths() {
  guest << 'E'
cd /mnt/db
truncate -s 1G sparse
same "$(stat -c '%s' sparse)" 1073741824 "length"
echo end | dd of=sparse bs=1 seek=1073741820 conv=notrunc status=none
head -c 1048576 sparse | cmp -n 1048576 - /dev/zero
same "$(tail -c 4 sparse)" end "behind the hole"
sync sparse
cd /
again db
[ "$(du -k /mnt/db/sparse | cut -f 1)" -lt 1024 ]
truncate -s 10 /mnt/db/sparse
same "$(stat -c %s /mnt/db/sparse)" 10 "cut off"
truncate -s 100000 /mnt/db/sparse
cmp -n 100000 /mnt/db/sparse /dev/zero
rm /mnt/db/sparse
E
}

test_many_names_in_one_folder() {
  guest << 'E'
mkdir /mnt/db/many
(cd /mnt/db/many && seq -f 'file-%04g' 1500 | xargs touch)
again db
same "$(find /mnt/db/many -type f | wc -l)" 1500 "files"
same "$(ls /mnt/db/many | md5sum)" "$(seq -f 'file-%04g' 1500 | md5sum)" "names"
rm -r /mnt/db/many
E
}

test_df_and_writes_show_the_quota() {
  daemon share set db --quota 64M
  guest << 'E'
df -k --output=size /mnt/db | tail -n 1
[ "$(df -k --output=size /mnt/db | tail -n 1)" -le 65536 ]
refused "quota" dd if=/dev/zero of=/mnt/db/large bs=1M count=80 conv=fsync
rm /mnt/db/large
E
  daemon share set db --no-quota
}

test_a_repository_and_a_program_are_built() {
  guest << 'E'
export HOME=/tmp GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@example.com GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@example.com
mkdir /mnt/db/project
cd /mnt/db/project
git init -q
for number in 1 2 3 4 5 6; do
  printf 'int part_%s(void) { return %s; }\n' "$number" "$number" > "part_$number.c"
done
cat > main.c << 'C'
#include <stdio.h>
int part_1(void), part_2(void), part_3(void), part_4(void), part_5(void), part_6(void);
int main(void) { printf("%d\n", part_1() + part_2() + part_3() + part_4() + part_5() + part_6()); return 0; }
C
printf 'sum: main.o %s\n\ttcc -o $@ $^\n%%.o: %%.c\n\ttcc -c -o $@ $<\n' "$(echo part_{1..6}.o)" > Makefile
git add .
git commit -q -m first
make -s -j 2
same "$(./sum)" 21 "the program"
git gc -q
cd /
again db
cd /mnt/db/project
git fsck --full
git status --porcelain
same "$(git log --format=%s)" first "the log"
cd /
rm -r /mnt/db/project
E
}
