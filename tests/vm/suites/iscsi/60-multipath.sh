# Two portals as two paths of dm-multipath. multipathd wants udev, which no other test runs.
# shellcheck shell=bash

setup() {
  guest << 'E'
modprobe -a dm_multipath dm_round_robin dm_service_time scsi_dh_alua
cat > /etc/multipath.conf << 'C'
defaults {
  find_multipaths no
  user_friendly_names no
  path_grouping_policy multibus
  path_selector "round-robin 0"
  polling_interval 1
  max_polling_interval 1
  no_path_retry 300
}
blacklist {
  devnode "^(vd|ram|loop|nbd|nullb|nvme|zram)"
}
C
/lib/systemd/systemd-udevd --daemon
udevadm trigger --settle --subsystem-match=block
multipathd
quick=(node.session.timeo.replacement_timeout=1 "node.conn[0].timeo.noop_out_interval=1" "node.conn[0].timeo.noop_out_timeout=2")
attach "$IQN" "$PEER_A" "${quick[@]}"
attach "$IQN" "$PEER_B" "${quick[@]}"
E
}
teardown() {
  net_link "$(guest_tap host 1)" up
  guest << 'E'
multipathd shutdown || :
ended() { ! pidof "$@"; }
eventually 10 ended multipathd > /dev/null
# udev looks at a map for a while after each change.
eventually 20 multipath -F > /dev/null
# Asked to end, it waits for what its workers are at, which may take minutes. Nothing needs them any more.
kill -KILL $(pidof systemd-udevd)
eventually 10 ended systemd-udevd > /dev/null
detach "$IQN"
E
}

# Of a script: `map`, the device-mapper device over LUN 0, and `paths_become STATE COUNT SECONDS`.
multipath_guest() {
  {
    cat << 'E'
# multipathd's lines about the paths to LUN 0: DEVICE WWID STATE.
lines() {
  local wwid
  wwid=$(multipathd show paths raw format '%d %w' | awk -v disk="$(basename "$(disk 0)")" '$1 == disk { print $2 }')
  multipathd show paths raw format '%d %w %t' | awk -v wwid="$wwid" 'wwid != "" && $2 == wwid'
}
map() { echo "/dev/mapper/$(lines | awk 'NR == 1 { print $2 }')"; }
paths_are() { [ "$(lines | awk -v state="$1" '$3 == state' | wc -l)" = "$2" ]; }
paths_become() {
  eventually "$3" paths_are "$1" "$2" || {
    multipathd show paths
    multipath -ll
    return 1
  }
}
E
    cat
  } | guest
}

test_both_portals_are_paths_of_one_disk() {
  multipath_guest << 'E'
paths_become active 2 60
multipath -ll
verified both-paths "$(map)" --rw=randwrite --bs=4k --iodepth=16 --size=8m
for address in "$PEER_A" "$PEER_B"; do
  path=$(device "$(session "$IQN" "$address")" 0)
  served=$(awk '{ print $5 }' "/sys/block/${path#/dev/}/stat")
  echo "$path by $address served $served writes"
  [ "$served" -gt 100 ]
done
E
}

test_io_goes_on_while_a_wire_is_cut() {
  path_lost_and_found "net_link $(guest_tap host 1) down" "net_link $(guest_tap host 1) up"
}

test_io_goes_on_while_a_portal_is_away() {
  path_lost_and_found "peer_portal_remove $PEER_B $PORT,$GROUP_B" "peer_portal_add $PEER_B $PORT,$GROUP_B"
}

# path_lost_and_found LOSE FIND: verified I/O all the while.
path_lost_and_found() {
  multipath_guest << 'E'
paths_become active 2 60
io_started lost-path "$(disk 0)" verified_for_a_while lost-path "$(map)"
E
  $1
  multipath_guest << 'E'
paths_become failed 1 40
paths_become active 1 20
dd if="$(map)" of=/dev/null bs=4k count=4 iflag=direct status=none
E
  $2
  multipath_guest << 'E'
paths_become active 2 60
io_ended lost-path 60
E
}
