# Discovery at a portal that requires authentication of all. nvme-cli 2.13 gives its secrets to no discovery controller, so the kernel is
# asked for one, which nvme-cli then uses.
# shellcheck shell=bash

# shellcheck source=tests/vm/suites/nvme-tcp/dhchap.sh
. "$VM_TOP/suites/nvme-tcp/dhchap.sh"

# The log has the portals of an address; the only one is the one that requires authentication.
setup() {
  needs_tls
  daemon portal remove "nvme+tcp://$PEER_A:$PORT"
  daemon portal remove "nvme+tcp://$PEER_A:$PORT_REQUIRED"
  daemon portal remove "nvme+tcp://$PEER_A:$PORT_ALLOWED"
  daemon portal create "nvme+tcp://$PEER_A:$PORT" --require-auth
}
teardown() { guest <<< 'not_connected "$DISCOVERY" || disconnect "$DISCOVERY"; not_connected "$CLOSED" || disconnect "$CLOSED"'; }

# discovery_guest HASH GROUP: a script in which `prove ARGUMENT...` has the kernel connect to the discovery service.
discovery_guest() {
  secrets 1
  require "$1" "$2"
  {
    cat << 'E'
trap told ERR
prove() {
  local told
  told="transport=tcp,traddr=$PEER_A,trsvcid=$PORT,nqn=$DISCOVERY,hostnqn=$HOST_1,hostid=${HOST_1##*uuid:},keep_alive_tmo=30"
  printf '%s' "$told$(printf ',%s' "$@")" > /dev/nvme-fabrics
}
found() { jq -r '.records[] | "\(.subnqn) \(.traddr) \(.trsvcid)"' /tmp/found; }
E
    cat
  } | auth_guest
}

test_without_a_secret_or_with_another_one_it_is_rejected() {
  discovery_guest sha256 none << 'E'
refused 'failed to add controller' nvme discover -t tcp -a "$PEER_A" -s "$PORT"
refused 'failed to add controller' nvme connect-all -t tcp -a "$PEER_A" -s "$PORT"
refused 'write error' prove "dhchap_secret=$WRONG"
dmesg | grep 'qid 0: authentication failed'
dmesg | grep 'qid 0: authentication setup failed'
not_connected "$CLOSED"
not_connected "$DISCOVERY"
E
}

test_with_a_secret_it_lists_targets_and_connect_all_connects() {
  discovery_guest sha256 ffdhe2048 << 'E'
prove "dhchap_secret=$SECRET"
service=$(controllers "$DISCOVERY")
nvme discover --device="$service" -t tcp -a "$PEER_A" -s "$PORT" --output-format=json > /tmp/found
found | grep -xF "$CLOSED $PEER_A $PORT"
nvme connect-all --device="$service" -t tcp -a "$PEER_A" -s "$PORT" --dhchap-secret="$SECRET" --nr-io-queues=2
disk=$(eventually 30 device 1 "$CLOSED")
verified all "$disk" --rw=randwrite --bs=4k --iodepth=8 --size=1m
disconnect "$CLOSED"
disconnect "$DISCOVERY"
E
}

test_the_service_proves_its_secret_too() {
  discovery_guest sha384 none << 'E'
refused 'write error' prove "dhchap_secret=$SECRET" "dhchap_ctrl_secret=$WRONG"
dmesg | grep 'controller authentication failed'
prove "dhchap_secret=$SECRET" "dhchap_ctrl_secret=$CTRL"
service=$(controllers "$DISCOVERY")
nvme discover --device="$service" -t tcp -a "$PEER_A" -s "$PORT" --output-format=json > /tmp/found
found | grep -xF "$CLOSED $PEER_A $PORT"
disconnect "$DISCOVERY"
E
}
