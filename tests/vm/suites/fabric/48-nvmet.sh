# Our NVMe/RDMA host, in software, with Linux's own target, nvmet-rdma.
# shellcheck shell=bash

NQN=nqn.2026-01.test.ramport:nvmet
DISK_MIB=64

setup() {
  needs_modules brd drivers/nvme
  guest NQN="$NQN" DISK_MIB="$DISK_MIB" <<< 'nvmet_up'
}
teardown() {
  guest NQN="$NQN" << 'E'
nvmet_down
link_mtu 9000
eventually 5 has_path_mtu rxe0 4096
E
}

test_path_mtu_4096() { asks_nvmet 4096; }
test_path_mtu_1024() {
  guest <<< 'link_mtu 1500; eventually 5 has_path_mtu rxe0 1024'
  asks_nvmet 1024
}

# asks_nvmet PATH_MTU: what is written is there, over both families of addresses, and packets are as long as they may be, not longer.
asks_nvmet() {
  guest NQN="$NQN" PATH_MTU="$1" << 'E'
peer_ramport discover "nvme+rdma://$HW_4?rdma=soft&local=$SOFT_4" | tee /tmp/discovered
grep "$NQN" /tmp/discovered
for ends in "$HW_4 $SOFT_4" "[$HW_6] $SOFT_6"; do
  read -r target host <<< "$ends"
  url="nvme+rdma://$target/$NQN?rdma=soft&local=$host"
  peer_ramport bench "$url" --write --verify --rw randwrite --bs 4k --iodepth 16 --size 1m
  peer_ramport bench "$url" --write --verify --rw write --bs 1m --iodepth 4 --size 4m
done
url="nvme+rdma://$HW_4/$NQN?rdma=soft&local=$SOFT_4"
longest_payloads 400 peer_ramport bench "$url" --write --verify --rw write --bs 1m --iodepth 1 --size 1m
same "$(xargs < /tmp/longest)" "from $HW_4 $PATH_MTU from $SOFT_4 $PATH_MTU" "the longest payloads"
E
}
