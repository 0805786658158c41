# What tests/vm/speed runs inside its guest: three ways to serve a RAM disk, and two clients.
# shellcheck shell=bash disable=SC2154

NQN=nqn.2026-01.io.ramport:speed
IQN=iqn.2026-01.io.ramport:speed
DISK_MIB=64
NVMET=/sys/kernel/config/nvmet
LIO=/sys/kernel/config/target

clients_up() {
  modprobe -a nvme-rdma ib_iser sd_mod crc32c
  # While the guest waits for its host its clock leaps on, and time limits pass: programs come from its own memory.
  cp /share/ramport /run/ramport
  echo "InitiatorName=iqn.2026-01.io.ramport:host" > /etc/iscsi/initiatorname.iscsi
  iscsid
}

# serve_soft PROTOCOL, serve_hw PROTOCOL: ramport in the namespace "peer", or on the client's own device.
serve_soft() { serve_ramport "$1" "$SOFT_4" ip netns exec peer; }
serve_hw() { serve_ramport "$1" "$HW_4"; }

serve_ramport() {
  local protocol=$1 address=$2 name=$NQN scheme=nvme+rdma
  shift 2
  [ "$protocol" = nvme ] || name=$IQN scheme=iser
  "$@" /run/ramport serve --socket /run/ramport.socket --state /run/ramport.state --memory 512M > /run/ramport.log 2>&1 &
  eventually 20 ramport ls > /dev/null
  ramport volume create disk --size "${DISK_MIB}MiB" --block-size 512 > /dev/null
  ramport target create "$name" --allow-any-host --volume disk > /dev/null
  ramport portal create "$scheme://$address" > /dev/null
}

ramport() { /run/ramport --socket /run/ramport.socket "$@"; }

end_soft() { end_ramport; }
end_hw() { end_ramport; }
end_ramport() {
  pkill -TERM -x ramport
  # It may be left as a zombie.
  eventually 20 bash -c '! pgrep -x -r R,S,D ramport > /dev/null'
  rm -rf /run/ramport.state
}

# serve_kernel PROTOCOL
serve_kernel() { "kernel_$1"; }
end_kernel() { "kernel_$1_end"; }

kernel_nvme() {
  modprobe brd rd_nr=1 rd_size=$((DISK_MIB * 1024))
  modprobe -a nvmet nvmet-rdma
  mkdir "$NVMET/subsystems/$NQN" "$NVMET/subsystems/$NQN/namespaces/1" "$NVMET/ports/1"
  echo 1 > "$NVMET/subsystems/$NQN/attr_allow_any_host"
  echo /dev/ram0 > "$NVMET/subsystems/$NQN/namespaces/1/device_path"
  echo 1 > "$NVMET/subsystems/$NQN/namespaces/1/enable"
  echo rdma > "$NVMET/ports/1/addr_trtype"
  echo ipv4 > "$NVMET/ports/1/addr_adrfam"
  echo "$HW_4" > "$NVMET/ports/1/addr_traddr"
  echo 4420 > "$NVMET/ports/1/addr_trsvcid"
  ln -s "$NVMET/subsystems/$NQN" "$NVMET/ports/1/subsystems/"
}

kernel_nvme_end() {
  rm "$NVMET/ports/1/subsystems/$NQN"
  rmdir "$NVMET/ports/1" "$NVMET/subsystems/$NQN/namespaces/1" "$NVMET/subsystems/$NQN"
}

kernel_iser() {
  local portal_group=$LIO/iscsi/$IQN/tpgt_1
  modprobe -a target_core_mod iscsi_target_mod ib_isert
  mkdir -p /etc/target "$LIO/core/rd_mcp_0/disk"
  echo "rd_pages=$((DISK_MIB * 256))" > "$LIO/core/rd_mcp_0/disk/control"
  echo 1 > "$LIO/core/rd_mcp_0/disk/enable"
  mkdir -p "$portal_group/lun/lun_0"
  ln -s "$LIO/core/rd_mcp_0/disk" "$portal_group/lun/lun_0/b"
  echo 0 > "$portal_group/attrib/authentication"
  echo 1 > "$portal_group/attrib/generate_node_acls"
  echo 0 > "$portal_group/attrib/demo_mode_write_protect"
  mkdir "$portal_group/np/$HW_4:3260"
  echo 1 > "$portal_group/np/$HW_4:3260/iser"
  echo 1 > "$portal_group/enable"
}

kernel_iser_end() {
  local portal_group=$LIO/iscsi/$IQN/tpgt_1
  echo 0 > "$portal_group/enable"
  rmdir "$portal_group/np/$HW_4:3260"
}

# attach_nvme HOW, attach_iser HOW: the disk, with every block of it written.
attach_nvme() {
  nvme connect -t rdma -a "$(address_of "$1")" -s 4420 -n "$NQN" --nr-io-queues=1
  fill_disk
}
attach_iser() {
  local portal
  portal="$(address_of "$1"):3260"
  iscsiadm -m node -o new -T "$IQN" -p "$portal" -I iser
  iscsiadm -m node -T "$IQN" -p "$portal" --login
  fill_disk
}

address_of() { [ "$1" = soft ] && echo "$SOFT_4" || echo "$HW_4"; }

fill_disk() {
  eventually 20 disk > /dev/null
  dd if=/dev/zero of="$(disk)" bs=1M count=$DISK_MIB oflag=direct status=none
}

# The device, whichever client has it.
disk() { find /dev -maxdepth 1 -name 'nvme[0-9]n1' -o -maxdepth 1 -name 'sd[a-z]' | grep .; }

detach_nvme() { nvme disconnect -n "$NQN" > /dev/null; }
detach_iser() {
  iscsiadm -m node -T "$IQN" --logout > /dev/null
  iscsiadm -m node -T "$IQN" -o delete
}

# measure TARGET PATTERN:DEPTH SECONDS: one round, one line.
measure() {
  local pattern=${2%:*} depth=${2#*:}
  fio --name=speed --filename="$(disk)" --rw="$pattern" --bs=4k --iodepth="$depth" --ioengine=libaio --direct=1 \
    --time_based --runtime="$3" --ramp_time=1 --norandommap --randrepeat=1 --output-format=json --output=/tmp/speed.json
  jq -r --arg target "$1" --arg shape "$pattern $depth" '.jobs[0] | (if .read.iops > 0 then .read else .write end)
    | [$target, $shape, .iops, .lat_ns.mean / 1000, .lat_ns.stddev / 1000, .clat_ns.percentile."99.000000" / 1000] | @tsv' \
    /tmp/speed.json | awk -F '\t' '{ printf "%-12s %-12s %8d %8.1f %8.1f %8.1f\n", $1, $2, $3, $4, $5, $6 }'
}
