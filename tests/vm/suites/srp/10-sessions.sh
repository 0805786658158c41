# Login and logout, which hosts are admitted, and what `session ls` shows.
# shellcheck shell=bash

test_the_printed_lines_connect_and_disconnect() {
  guest CONNECT="$(connect_lines "$IQN")" << 'G'
attach
same "$(size_mib "$(disk 0)")" "$DISK_MIB" "size of LUN 0"
same "$(size_mib "$(disk 1)")" "$DISK_4K_MIB" "size of LUN 1"
same "$(cat "/sys/block/$(basename "$(disk 1)")/queue/logical_block_size")" 4096 "block size of LUN 1"
dd if="$(disk 0)" of=/dev/null bs=64k count=4 iflag=direct status=none
G
  daemon session ls
  [ "$(daemon --json session ls | jq -r '.[].transport')" = srp ]
  [ "$(daemon --json session ls | jq -r '.[].host' | grep -cE '^0x[0-9a-f]{32}$')" = 1 ]
  guest DISCONNECT="$(daemon --json connect-line "$IQN" --portal "srp://$PEER_A:$PORT" | jq -r '.disconnect[]')" << 'G'
bash -e <<< "$DISCONNECT"
eventually 20 not_attached
G
  [ "$(peer_session_count)" = 0 ]
}

test_an_unknown_target_is_refused() {
  guest CONNECT="$(connect_lines "$IQN" | sed 's/id_ext=./id_ext=f/; s/ioc_guid=./ioc_guid=f/')" << 'G'
dmesg --clear
not connect
dmesg | grep -i 'SRP LOGIN REJECTED, reason 0x00010003'
not_attached
G
}

# The target knows the host by its port identifier: the extension that it was told, and what its GID ends with.
test_a_host_is_known_by_its_port_identifier() {
  local name
  name=$(guest <<< 'tr -d : < /sys/class/infiniband/rxe0/ports/1/gids/0 | cut -c 17-32' | tail -n 1)
  name=0x00000000000000a5$name
  daemon host create "$name"
  daemon target set "$IQN" --host "$name"
  guest CONNECT="$(connect_lines "$IQN")" << 'G'
grep -F initiator_ext=00000000000000a5 <<< "$CONNECT"
attach
dmesg --clear
CONNECT=${CONNECT/00000000000000a5/00000000000000a6}
not connect
dmesg | grep -i 'SRP LOGIN REJECTED, reason 0x00010003'
detach
G
  daemon target set "$IQN" --allow-any-host
  daemon host remove "$name"
}

test_several_channels_are_one_session() {
  guest CONNECT="$(connect_lines "$IQN")" << 'G'
attach ch_count=3
G
  [ "$(peer_session_count)" = 1 ]
  [ "$(daemon --json session ls | jq '.[].connections')" = 3 ]
  guest << 'G'
verified channels "$(disk 0)" --rw=randwrite --bs=4k --iodepth=16 --size=2m
detach
G
  [ "$(peer_session_count)" = 0 ]
}

test_rounds_of_login_and_logout_leave_nothing() {
  local before after
  guest CONNECT="$(connect_lines "$IQN")" <<< 'attach; detach'
  before=$(peer_descriptors)
  guest CONNECT="$(connect_lines "$IQN")" << 'G'
for round in {1..6}; do
  attach
  detach
done
G
  after=$(peer_descriptors)
  echo "descriptors open: $before before, $after after"
  [ "$after" -le "$before" ]
  [ "$(peer_session_count)" = 0 ]
}
