# The daemon in a second guest, with adapters for RDMA: rdma_rxe on each of its network cards.
# shellcheck shell=bash disable=SC2034

# shellcheck source=/dev/null
. "$VM_TOP/peers/ramport.sh"
PEER_A=10.77.0.12
PEER_B=10.77.1.12
PEER_BOOT=(-m 2048 -n "br0=$PEER_A/24" -n "br1=$PEER_B/24")
PEER_SHARE=$VM_STATE/target/share

peer_start() {
  guest_start target "${PEER_BOOT[@]}" -p "$(peer_script <<< rxe_up)"
  cp "$RAMPORT" "$PEER_SHARE/ramport"
  daemon_launch
}
peer_stop() { guest_stop target; }
peer_alive() { guest_alive target && peer_run <<< '[ -e "/proc/$(cat /run/ramport.pid)/exe" ]'; }
peer_log() { peer_run <<< 'tail -n 30 /run/ramport.log; dmesg | tail -n 10'; }
peer_can() { [ "$1" != rdma-threads ]; }
peer_descriptors() { peer_run <<< 'find "/proc/$(cat /run/ramport.pid)/fd" -mindepth 1 | wc -l'; }
peer_memory_kib() { peer_run <<< 'awk "/^VmRSS/ { print \$2 }" "/proc/$(cat /run/ramport.pid)/status"'; }

# The script on stdin, inside the target's guest.
peer_run() { peer_script | guest_exec target -t 300; }
peer_script() { cat "$VM_TOP/guest/prelude.sh" "$VM_TOP/guest/rdma.sh" -; }

daemon_launch() { peer_run <<< 'ramport_up --memory 1G'; }
daemon() { guest_exec target -t 300 <<< "$(printf '%q ' /share/ramport --socket /run/ramport.sock "$@")"; }

peer_crash() {
  peer_run <<< ramport_kill
  daemon_launch
}

# The adapter of PEER_A is taken away under the daemon, which goes on and says so; and comes back, and the portal with it.
peer_adapter_away() { peer_run <<< "adapter_away rxe0 $PORTAL_SCHEME://$PEER_A:$PORT${GROUP_A:+,$GROUP_A}"; }
peer_adapter_back() { peer_run <<< "adapter_back rxe0 eth0 $PORTAL_SCHEME://$PEER_A:$PORT${GROUP_A:+,$GROUP_A}"; }

peer_address_add() { peer_run <<< "ip address add $1 dev eth0 nodad"; }

# Over RDMA by an adapter, or not at all.
peer_portal_add() { daemon portal create "$PORTAL_SCHEME://$1:$2$(peer_portal_query)"; }
peer_portal_query() { case $PORTAL_SCHEME in nvme+rdma | iser | srp) echo "?rdma=hw" ;; esac; }

peer_host_chap() {
  local host=$1
  shift
  peer_secrets "$2" "${4:-}"
  daemon host "$(daemon host show "$host" > /dev/null 2>&1 && echo set || echo create)" "$host" \
    --chap-user "$1" --chap-secret-file /share/secret ${3:+--mutual-user "$3" --mutual-secret-file /share/mutual-secret}
}

peer_host_dhchap() {
  peer_secrets "$2" "$3"
  daemon host set "$1" --dhchap-secret-file /share/secret --dhchap-ctrl-secret-file /share/mutual-secret "${@:4}"
}

# peer_secrets SECRET MUTUAL_SECRET: in files that the daemon can read.
peer_secrets() {
  echo "$1" > "$PEER_SHARE/secret"
  echo "$2" > "$PEER_SHARE/mutual-secret"
  chmod 600 "$PEER_SHARE/secret" "$PEER_SHARE/mutual-secret"
}
