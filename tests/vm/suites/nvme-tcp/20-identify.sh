# What nvme-cli asks a controller about itself.
# shellcheck shell=bash

setup() { connect_host; }
teardown() { disconnect_host; }

test_list_shows_both_namespaces() {
  guest << 'E'
nvme list
nvme list-subsys
nvme list -o json > /tmp/list.json
for namespace in "1 $DISK_MIB 512" "2 $DISK_4K_MIB 4096"; do
  read -r nsid mib block_bytes <<< "$namespace"
  found=$(jq -r --arg path "$(device "$nsid")" \
    '.Devices[] | select(.DevicePath == $path) | "\(.PhysicalSize) \(.SectorSize)"' /tmp/list.json)
  same "$found" "$((mib * 1048576)) $block_bytes" "namespace $nsid"
done
E
}

test_id_ctrl_describes_a_fabrics_controller() {
  guest << 'E'
controller=/dev/$(controllers | head -n 1)
nvme id-ctrl "$controller" -o json > /tmp/id.json
cat /tmp/id.json
same "$(jq -r .subnqn /tmp/id.json)" "$NQN" subnqn
jq -e '.cntlid > 0 and .nn >= 2 and .ioccsz >= 4 and .iorcsz == 1 and .sgls > 0 and .kas > 0 and .ver >= 66304' /tmp/id.json
same "$(jq -r .sqes /tmp/id.json)" 102 sqes
same "$(jq -r .cqes /tmp/id.json)" 68 cqes
E
}

test_properties() {
  guest << 'E'
controller=/dev/$(controllers | head -n 1)
# Capabilities, version, configuration, status.
for offset in 0x0 0x8 0x14 0x1c; do nvme get-property "$controller" --offset="$offset" --human-readable; done
nvme get-property "$controller" --offset=0x1c | grep -q 'value: 1$'
E
}

test_id_ns_tells_size_format_and_identifiers() {
  guest << 'E'
controller=/dev/$(controllers | head -n 1)
for namespace in "1 $DISK_MIB 9" "2 $DISK_4K_MIB 12"; do
  read -r nsid mib shift <<< "$namespace"
  nvme id-ns "$controller" -n "$nsid" -o json > /tmp/ns.json
  same "$(jq .nsze /tmp/ns.json)" "$((mib * 1048576 >> shift))" "nsze of $nsid"
  same "$(jq '.lbafs[.flbas % 16].ds' /tmp/ns.json)" "$shift" "block size of $nsid"
  nvme ns-descs "$controller" -n "$nsid"
  cat "/sys/block/$(basename "$(device "$nsid")")/wwid"
done
[ "$(cat /sys/block/"$(basename "$(device 1)")"/wwid)" != "$(cat /sys/block/"$(basename "$(device 2)")"/wwid)" ]
nvme list-ns "$controller"
same "$(nvme list-ns "$controller" | awk '{ print $NF }' | paste -sd ' ')" "0]:0x1 1]:0x2"
E
}

test_identifiers_that_are_set_are_seen() {
  [ "$PEER" = ramport ] || skip "the peer cannot set identifiers"
  local uuid=6ba7b810-9dad-41d1-80b4-00c04fd430c8 nguid=0123456789abcdef0123456789abcdef eui64=02004567a425678d
  daemon volume create identified --size 16MiB --uuid "$uuid" --nguid "$nguid" --eui64 "$eui64"
  daemon target attach "$NQN" identified --nsid 3
  guest UUID="$uuid" NGUID="$nguid" EUI64="$eui64" << 'E'
controller=/dev/$(controllers | head -n 1)
disk=$(basename "$(eventually 10 device 3)")
nvme id-ns "$controller" -n 3 -o json > /tmp/ns.json
same "$(jq -r '"\(.nguid) \(.eui64)"' /tmp/ns.json)" "$NGUID $EUI64" "nguid eui64"
nvme ns-descs "$controller" -n 3 | tee /tmp/descriptors
for told in "uuid $UUID" "nguid $NGUID" "eui64 $EUI64"; do
  grep -xE "${told% *} *: ${told#* } *" /tmp/descriptors
done
same "$(cat "/sys/block/$disk/uuid")" "$UUID" uuid
same "$(tr -d ' -' < "/sys/block/$disk/nguid")" "$NGUID" nguid
same "$(tr -d ' ' < "/sys/block/$disk/eui")" "$EUI64" eui
same "$(cat "/sys/block/$disk/wwid")" "uuid.$UUID" wwid
E
  daemon target detach "$NQN" 3 --force
  guest <<< 'eventually 10 no_device 3'
  daemon volume remove identified --force
}

test_smart_log_counts_what_was_done() {
  guest << 'E'
controller=/dev/$(controllers | head -n 1)
smart() { nvme smart-log "$controller" -o json > "/tmp/smart-$1.json"; }
smart before
dd if=/dev/urandom of="$(device 1)" bs=128k count=32 oflag=direct status=none
dd if="$(device 1)" of=/dev/null bs=128k count=32 iflag=direct status=none
smart after
cat /tmp/smart-after.json
jq -es 'def rise(field): (.[1] | field | tonumber) - (.[0] | field | tonumber);
  rise(.host_write_commands) >= 32 and rise(.host_read_commands) >= 32 and
  rise(.data_units_written) >= 8 and rise(.data_units_read) >= 8' /tmp/smart-before.json /tmp/smart-after.json
jq -e '.critical_warning == 0' /tmp/smart-after.json
E
}

test_out_of_range_read_is_refused_and_logged() {
  guest EXACT="$(peer_can lba-range && echo yes)" << 'E'
controller=/dev/$(controllers | head -n 1)
blocks=$((DISK_MIB * 2048))
refused "${EXACT:+LBA.*range}" nvme read "$(device 1)" --start-block="$blocks" --block-count=0 --data-size=512
nvme error-log "$controller" -e 4
[ -z "$EXACT" ] || nvme error-log "$controller" -e 1 -o json | jq -e ".errors[0] | .error_count > 0 and .lba == $blocks and .nsid == 1"
dd if="$(device 1)" of=/dev/null bs=4k count=1 iflag=direct status=none
E
}

test_log_pages() {
  guest << 'E'
controller=/dev/$(controllers | head -n 1)
nvme fw-log "$controller"
# Without its command set this nvme-cli asks for a register that fabrics lack.
nvme effects-log "$controller" --csi=0 -H > /tmp/effects
cat /tmp/effects
grep -q 'ACS6 .*Identify' /tmp/effects
grep -q 'IOCS1 .*Write' /tmp/effects
nvme changed-ns-list-log "$controller"
nvme ana-log "$controller"
nvme ana-log "$controller" -o json | jq -e '[.["ANA DESC LIST "][] | select(.state == "optimized") | .NSIDS[].nsid] == [1, 2]'
E
}

test_get_feature() {
  guest << 'E'
controller=/dev/$(controllers | head -n 1)
# Number of queues, asynchronous event configuration, keep alive timer.
for feature in 0x07 0x0b 0x0f; do nvme get-feature "$controller" -f "$feature" -H; done
nvme get-feature "$controller" -f 0x0f | grep -qE 'value:0x0*1388|value:0x0*[1-9a-f]'
refused 'invalid field' nvme get-feature "$controller" -f 0x7f
E
}

test_unknown_commands_get_invalid_opcode() {
  guest << 'E'
controller=/dev/$(controllers | head -n 1)
refused 'invalid command opcode' nvme admin-passthru "$controller" --opcode=0xff
refused 'invalid command opcode' nvme io-passthru "$(device 1)" --opcode=0x84 --namespace-id=1
live "$(basename "$controller")"
E
}

# Each may be answered or refused; none may end the connection.
test_optional_requests_leave_the_controller_live() {
  guest << 'E'
controller=/dev/$(controllers | head -n 1)
disk=$(device 1)
while read -r verb arguments; do
  status=0
  # shellcheck disable=SC2086
  nvme "$verb" ${arguments:-"$controller"} > /tmp/out 2>&1 || status=$?
  echo "$verb: status $status: $(tail -n 1 /tmp/out)"
  live "$(basename "$controller")"
done << REQUESTS
id-ns-granularity
nvm-id-ctrl
cmdset-ind-id-ns $controller -n 1
id-iocs
nvm-id-ns $controller -n 1
id-ns $controller -n 77
id-ns $controller -n 4294967295
list-ctrl
list-ns $controller --all
primary-ctrl-caps
list-secondary
list-endgrp
id-uuid
id-nvmset
supported-log-pages
persistent-event-log $controller --action=0
endurance-log
self-test-log
sanitize-log
predictable-lat-log $controller --nvmset-id=1
telemetry-log $controller --output-file=/tmp/telemetry
fid-support-effects-log
boot-part-log $controller --output-file=/tmp/boot
dir-receive $controller -D 0 -O 1 -n 1
get-lba-status $disk --action=0x11 --max-dw=64 --start-lba=0 --range-len=8
device-self-test $controller -n 1 --self-test-code=1
sanitize $controller --sanact=2
format $disk --ses=1 --force
fw-commit $controller --slot=1 --action=2
set-feature $controller --feature-id=0x0f --value=5000
set-feature $controller --feature-id=0x07 --value=0
attach-ns $controller -n 9 --controllers=1
security-recv $controller --size=256
ns-rescan
REQUESTS
dd if="$disk" of=/dev/null bs=4k count=1 iflag=direct status=none
E
}

test_controller_reset() {
  guest << 'E'
controller=$(controllers | head -n 1)
echo pattern | dd of="$(device 1)" bs=512 count=1 conv=sync oflag=direct status=none
nvme reset "/dev/$controller"
eventually 10 live "$controller"
dd if="$(device 1)" bs=512 count=1 iflag=direct status=none | grep -q pattern
E
}
