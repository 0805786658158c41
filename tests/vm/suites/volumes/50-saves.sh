# Volumes in memory that are saved and restored, under file systems.
# shellcheck shell=bash

setup() {
  needs_modules ext4 xfs
  saved ext4 64M 512
  saved xfs 320M 4096
  offer 1 ext4
  offer 2 xfs
  connect_for_long
}
teardown() { disconnect_host; }

saved() { daemon volume create "$1" --size "$2" --block-size "$3" --save-to "$FILES_DIR" --after-crash restore; }

test_a_killed_daemon_returns_to_the_last_save() {
  guest << 'E'
made_with_tree "$(device 1)" mkfs.ext4 -q -F
umount /mnt/disk
made_with_tree "$(device 2)" mkfs.xfs -q -f
umount /mnt/disk
E
  daemon volume save ext4
  daemon volume save xfs
  guest << 'E'
for nsid in 1 2; do
  mounted "$(device "$nsid")"
  rm -r /mnt/disk/tree
  umount /mnt/disk
done
E
  peer_crash
  guest << 'E'
eventually 60 connected_again
for nsid_type in "1 ext4" "2 xfs"; do
  read -r nsid type <<< "$nsid_type"
  blockdev --flushbufs "$(device "$nsid")"
  mounted "$(device "$nsid")"
  has_tree
  umount /mnt/disk
  checked "$(device "$nsid")" "$type"
done
E
}

# The file system stays mounted over RDMA, and is read as soon as the daemon serves it again.
test_a_stopped_daemon_goes_on_with_everything_over_rdma() {
  daemon portal create "nvme+rdma://$PEER_A:$PORT"
  guest << 'E'
disconnect
rxe_up
modprobe nvme-rdma register_always=N
TRANSPORT=rdma connect "$PEER_A" --keep-alive-tmo=5 --reconnect-delay=1 --ctrl-loss-tmo=600
mounted "$(device 2)"
dd if=/dev/urandom of=/mnt/disk/large bs=1M count=64 conv=fsync status=none
md5sum /mnt/disk/large > /tmp/large
echo 3 > /proc/sys/vm/drop_caches
E
  daemon_stop
  daemon_launch
  guest << 'E'
md5sum --check /tmp/large
has_tree
umount /mnt/disk
checked "$(device 2)" xfs
E
}

# As a service manager does.
daemon_stop() {
  kill -TERM "$(daemon_pid)"
  while peer_alive; do sleep 0.05; done
}
