# Linux's own NVMe target in a second guest, by configfs: the reference.
# shellcheck shell=bash disable=SC2034

PEER_A=10.77.0.12
PEER_B=10.77.1.12
NVMET_BOOT=(-m 1536 -n "br0=$PEER_A/24" -n "br1=$PEER_B/24")

peer_start() {
  guest_start target "${NVMET_BOOT[@]}" -p 'modprobe -a nvmet nvmet-tcp loop; mkdir /volumes; mount -t tmpfs volumes /volumes'
}
peer_stop() { guest_stop target; }
peer_alive() { guest_alive target; }
peer_log() { nvmet_run <<< 'dmesg | tail -n 30'; }
peer_can() { case $1 in reservations | lock | compare | copy | usage | lba-range | iscsi | iser | srp | rdma | rdma-threads | lose-adapters) return 1 ;; esac; }

# nvmet_run [NAME=VALUE]...: the script on stdin, inside the target's guest.
nvmet_run() {
  {
    cat "$VM_TOP/guest/prelude.sh"
    echo 'cd /sys/kernel/config/nvmet'
    local assignment
    for assignment; do printf '%s=%q\n' "${assignment%%=*}" "${assignment#*=}"; done
    cat
  } | guest_exec target -t 300
}

# Takes the ports away and brings them back with empty volumes.
peer_crash() {
  nvmet_run << 'E'
for port in ports/*; do
  for link in "$port"/subsystems/*; do rm "$link"; done
done
for volume in /volumes/*; do
  size=$(stat -c %s "$volume")
  truncate -s 0 "$volume"
  truncate -s "$size" "$volume"
done
sleep 1
for port in ports/*; do
  for subsystem in subsystems/*; do ln -s "/sys/kernel/config/nvmet/$subsystem" "$port/subsystems/"; done
done
E
}

peer_portal_add() {
  nvmet_run ADDRESS="$1" PORT="$2" << 'E'
number=$(($(ls ports | sort -n | tail -n 1) + 1))
mkdir "ports/$number"
cd "ports/$number"
echo tcp > addr_trtype
echo ipv4 > addr_adrfam
echo "$ADDRESS" > addr_traddr
echo "$PORT" > addr_trsvcid
for subsystem in ../../subsystems/*; do
  [ ! -d "$subsystem" ] || ln -s "/sys/kernel/config/nvmet/subsystems/${subsystem##*/}" subsystems/
done
E
}

peer_portal_remove() {
  nvmet_run ADDRESS="$1" PORT="$2" << 'E'
for port in ports/*; do
  [ "$(cat "$port/addr_traddr") $(cat "$port/addr_trsvcid")" = "$ADDRESS $PORT" ] || continue
  rm "$port"/subsystems/*
  rmdir "$port"
done
E
}

# A file system serves 4096 bytes a block, a loop device 512.
peer_volume_create() {
  nvmet_run NAME="$1" MIB="$2" BLOCK_BYTES="$3" << 'E'
truncate -s "${MIB}M" "/volumes/$NAME"
[ "$BLOCK_BYTES" = 4096 ] || losetup --find --show "/volumes/$NAME" > "/run/$NAME.device"
E
}

peer_volume_resize() {
  nvmet_run NAME="$1" MIB="$2" << 'E'
truncate -s "${MIB}M" "/volumes/$NAME"
path=/volumes/$NAME
if [ -e "/run/$NAME.device" ]; then
  path=$(cat "/run/$NAME.device")
  losetup --set-capacity "$path"
fi
for namespace in subsystems/*/namespaces/*; do
  [ "$(cat "$namespace/device_path")" != "$path" ] || echo 1 > "$namespace/revalidate_size"
done
E
}

peer_target_create() {
  nvmet_run NQN="$1" HOST="$2" << 'E'
mkdir "subsystems/$NQN"
if [ "$HOST" = any ]; then
  echo 1 > "subsystems/$NQN/attr_allow_any_host"
else
  mkdir -p "hosts/$HOST"
  ln -s "/sys/kernel/config/nvmet/hosts/$HOST" "subsystems/$NQN/allowed_hosts/"
fi
for port in ports/*; do
  [ ! -d "$port" ] || ln -s "/sys/kernel/config/nvmet/subsystems/$NQN" "$port/subsystems/"
done
E
}

peer_target_allow() {
  nvmet_run NQN="$1" HOST="$2" << 'E'
mkdir -p "hosts/$HOST"
ln -s "/sys/kernel/config/nvmet/hosts/$HOST" "subsystems/$NQN/allowed_hosts/"
E
}

peer_namespace_add() {
  nvmet_run NQN="$1" NSID="$2" NAME="$3" << 'E'
cd "subsystems/$NQN/namespaces"
mkdir "$NSID"
if [ -e "/run/$NAME.device" ]; then
  cat "/run/$NAME.device" > "$NSID/device_path"
else
  echo 1 > "$NSID/buffered_io"
  printf %s "/volumes/$NAME" > "$NSID/device_path"
fi
echo 1 > "$NSID/enable"
E
}

peer_namespace_remove() {
  nvmet_run NQN="$1" NSID="$2" <<< 'rmdir "subsystems/$NQN/namespaces/$NSID"'
}
