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

# mounted4 VERSION SHARE NAME [OPTION,...]: on /mnt/NAME, over TCP.
mounted4() {
  mkdir -p "/mnt/$3"
  mount -t nfs -o "vers=$1,proto=tcp,port=$PORT${4:+,$4}" "$PEER_A:/$2" "/mnt/$3"
}

# locker_up: builds `locker`, which has its own locks of fcntl(2): locker try|hold r|w OFFSET LENGTH FILE.
locker_up() {
  cat > /tmp/locker.c << 'C'
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int count, char **words) {
  struct flock lock = {0};
  int file = open(words[5], O_RDWR);
  lock.l_type = words[2][0] == 'w' ? F_WRLCK : F_RDLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = atoll(words[3]);
  lock.l_len = atoll(words[4]);
  if (file < 0 || fcntl(file, F_SETLK, &lock) < 0) {
    perror(words[5]);
    return 1;
  }
  if (words[1][0] == 'h') {
    puts("held");
    fflush(stdout);
    for (;;) pause();
  }
  return 0;
}
C
  tcc -o /usr/bin/locker /tmp/locker.c
}

# xattr_up: builds `xattr`: xattr get|rm FILE NAME, xattr set|create|replace FILE NAME VALUE, xattr fill FILE NAME LENGTH, xattr ls FILE.
xattr_up() {
  cat > /tmp/xattr.c << 'C'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
static char bytes[1 << 17];
int main(int count, char **words) {
  const char *verb = words[1], *file = words[2];
  long done = -1, at;
  size_t length;
  if (!strcmp(verb, "get")) {
    done = getxattr(file, words[3], bytes, sizeof bytes);
    if (done >= 0) printf("%.*s\n", (int)done, bytes);
  } else if (!strcmp(verb, "rm")) {
    done = removexattr(file, words[3]);
  } else if (!strcmp(verb, "ls")) {
    done = listxattr(file, bytes, sizeof bytes);
    for (at = 0; at < done; at += strlen(bytes + at) + 1) puts(bytes + at);
  } else if (!strcmp(verb, "fill")) {
    length = strtoul(words[4], 0, 10);
    memset(bytes, 'f', length);
    done = setxattr(file, words[3], bytes, length, 0);
  } else {
    done = setxattr(file, words[3], words[4], strlen(words[4]), !strcmp(verb, "create") ? 1 : !strcmp(verb, "replace") ? 2 : 0);
  }
  if (done < 0) perror(file);
  return done < 0;
}
C
  tcc -o /usr/bin/xattr /tmp/xattr.c
}

# lock_held r|w OFFSET LENGTH FILE: by a program in the background.
lock_held() {
  : > /tmp/held
  locker hold "$@" > /tmp/held &
  eventually 20 test -s /tmp/held
}

# locks_up: what Linux's client needs for locks of version 3: its portmapper and its status monitor.
locks_up() {
  pgrep -x rpcbind || rpcbind
  pgrep -x rpc.statd || rpc.statd --no-notify
}

# again SHARE [OPTION,...]: mounted anew, so that nothing is cached.
again() {
  umount "/mnt/$1"
  echo 3 > /proc/sys/vm/drop_caches
  mounted "$@"
}

# as_user COMMAND...: as one who owns nothing here.
as_user() { setpriv --reuid "$USER_ID" --regid "$USER_ID" --clear-groups "$@"; }

# verified_file NAME FILE [FIO_ARGUMENT]...: writes, reads back and compares, through the page cache unless --direct=1.
verified_file() {
  fio --name="$1" --filename="$2" --ioengine=psync --verify=crc32c --verify_fatal=1 --do_verify=1 --randseed=7 --fallocate=none \
    "${@:3}"
}

# synced_rounds NAME FILE: for io_rounds, until a round fails.
synced_rounds() { verified_file "$1" "$2" --direct=1 --rw=randrw --bs=4k --size=1m --verify_backlog=16 --time_based --runtime=2; }
