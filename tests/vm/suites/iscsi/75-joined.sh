# Several remote RAM disks as one: striped by md, appended by device-mapper.
# shellcheck shell=bash

JOINED=$IQN-joined
PIECES=4
# xfs wants 300 MiB.
PIECE_MIB=80

setup() {
  local piece
  needs_modules raid0 dm_mod xfs
  peer_target_create "$JOINED" any
  for ((piece = 0; piece < PIECES; piece++)); do
    peer_volume_create "piece-$piece" "$PIECE_MIB" 512
    peer_namespace_add "$JOINED" "$piece" "piece-$piece"
  done
  # Without udev both make their nodes themselves.
  joined_guest << 'E'
modprobe -a raid0 dm_mod
attach "$JOINED" "$PEER_A"
for ((piece = 0; piece < PIECES; piece++)); do eventually 15 device "$(session "$JOINED")" "$piece"; done
E
}
teardown() {
  joined_guest << 'E'
[ ! -b /dev/md0 ] || mdadm --stop /dev/md0
dmsetup remove --noudevsync joined 2> /dev/null || :
detach "$JOINED"
E
  peer_target_remove "$JOINED"
}

joined_guest() {
  {
    cat << 'E'
export MDADM_NO_UDEV=1 DM_DISABLE_UDEV=1
pieces() { for ((piece = 0; piece < PIECES; piece++)); do device "$(session "$JOINED")" "$piece"; done; }
E
    cat
  } | guest JOINED="$JOINED" PIECES="$PIECES" PIECE_MIB="$PIECE_MIB"
}

test_md_raid0_holds_a_filesystem() {
  joined_guest << 'E'
# shellcheck disable=SC2046
mdadm --create /dev/md0 --run --level=0 --raid-devices="$PIECES" --chunk=64 $(pieces)
cat /proc/mdstat
[ "$(size_mib /dev/md0)" -gt $((PIECES * PIECE_MIB * 9 / 10)) ]
verified striped /dev/md0 --rw=randwrite --bs=256k --iodepth=8 --size=32m
holds_a_tree /dev/md0 mkfs.ext4 -q -F
for disk in $(pieces); do
  written=$(awk '{ print $7 }' "/sys/block/${disk#/dev/}/stat")
  echo "$disk: $written sectors written"
  [ "$written" -gt $((8 * 2048)) ]
done
mdadm --stop /dev/md0
# shellcheck disable=SC2046
mdadm --zero-superblock $(pieces)
E
}

test_dm_linear_holds_a_filesystem() {
  joined_guest << 'E'
begin=0
for disk in $(pieces); do
  sectors=$(cat "/sys/block/${disk#/dev/}/size")
  echo "$begin $sectors linear $disk 0"
  begin=$((begin + sectors))
done | tee /tmp/table | dmsetup create --noudevsync joined
dmsetup table joined
same "$(blockdev --getsize64 /dev/mapper/joined)" $((PIECES * PIECE_MIB << 20)) bytes
# Across the seam of the first two pieces.
verified seam /dev/mapper/joined --rw=write --bs=48k --iodepth=8 --offset="$((PIECE_MIB - 4))m" --size=8m
holds_a_tree /dev/mapper/joined mkfs.xfs -q -f
dmsetup remove --noudevsync joined
E
}
