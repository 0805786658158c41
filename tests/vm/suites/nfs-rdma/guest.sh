# Helpers inside the guest, beside those of the suite nfs.
# shellcheck shell=bash disable=SC2154

# mounted_by_rdma SHARE: on /mnt/SHARE.
mounted_by_rdma() {
  mkdir -p "/mnt/$1"
  mount -t nfs -o "vers=3,proto=rdma,port=$PORT_RDMA,mountport=$PORT,mountproto=tcp,nolock" "$PEER_A:/$1" "/mnt/$1"
  grep " /mnt/$1 nfs .*proto=rdma" /proc/mounts
}

# again_by_rdma SHARE: mounted anew, so that nothing is cached.
again_by_rdma() {
  umount "/mnt/$1"
  echo 3 > /proc/sys/vm/drop_caches
  mounted_by_rdma "$1"
}
