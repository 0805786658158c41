# A mirror of memory, a file and a disk of another machine.
# shellcheck shell=bash

FAR_TARGET=nqn.2026-01.test.ramport:far
MEMBERS=(near-ram near-file far)

setup() {
  needs_modules ext4
  far_up mirror 64M "nvme+tcp://$PEER_A:4421" "$FAR_TARGET"
  daemon volume create near-ram --size 64M
  daemon volume create near-file --file "$FILES_DIR/near.img" --size 64M
  daemon volume create far --remote "nvme+tcp://$PEER_A:4421/$FAR_TARGET" --io-timeout 2s
  daemon volume create m0 --mirror near-ram,near-file,far
  offer 1 m0
  connect_host
}
teardown() { disconnect_host; }

# At each moment another member has what the others miss.
test_members_fail_and_return_under_verified_io() {
  soon all_in_sync
  guest << 'E'
made_with_tree "$(device 1)" mkfs.ext4 -q -F
io_started under "$(device 1)" verified_for_a_while under /mnt/disk/under
E
  daemon volume mirror m0 --fail near-ram
  on_far mirror daemon_kill
  soon member_is far out_of_sync
  on_far mirror daemon_launch
  daemon volume mirror m0 --return near-ram
  # A member that failed to write returns on request.
  daemon volume mirror m0 --return far
  soon all_in_sync
  daemon volume mirror m0 --fail near-file
  sleep 1
  daemon volume mirror m0 --return near-file
  soon all_in_sync
  guest <<< 'io_ended under 60'
}

test_members_hold_the_same_afterwards() {
  guest << 'E'
umount /mnt/disk
checked "$(device 1)" ext4
E
  soon all_in_sync
  daemon --json volume scrub m0 | tee "$VM_STATE/scrub"
  [ "$(jq .differing_bytes "$VM_STATE/scrub")" = 0 ]
}

test_each_member_alone_has_the_file_system() {
  local member
  for member in "${MEMBERS[@]}"; do
    soon all_in_sync
    others_of "$member" --fail
    guest << 'E'
echo 3 > /proc/sys/vm/drop_caches
mounted "$(device 1)" -o ro
has_tree
umount /mnt/disk
E
    others_of "$member" --return
  done
}

# others_of MEMBER --fail|--return
others_of() {
  local other
  for other in "${MEMBERS[@]}"; do
    [ "$other" = "$1" ] || daemon volume mirror m0 "$2" "$other"
  done
}

member_is() { [ "$(shown m0 ".mirror.members[] | select(.volume == \"$1\").state")" = "$2" ]; }
all_in_sync() { [ "$(shown m0 '[.mirror.members[] | select(.state == "in_sync")] | length')" = "${#MEMBERS[@]}" ]; }
