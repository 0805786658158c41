# Helpers inside the guest.
# shellcheck shell=bash disable=SC2154

# tlshd_start: it carries out the kernel's handshakes.
tlshd_start() {
  printf '[debug]\nloglevel=1\ntls=1\nnl=0\n[authenticate]\nkeyrings=.nvme\n' > /etc/tlshd-test.conf
  setsid tlshd --stderr --config=/etc/tlshd-test.conf > /tmp/tlshd.log 2>&1 < /dev/null &
  eventually 10 pidof tlshd > /dev/null
}

# insert KEY VERSION SUBNQN [NVME_ARGUMENT]...: for the first host, into the kernel's keyring.
insert() {
  nvme check-tls-key --insert --keydata="$1" --identity="$2" --hostnqn="$HOST_1" --subsysnqn="$3" "${@:4}"
}

keyring() { awk '$8 == "keyring" && $9 == ".nvme:" { print "0x" $1 }' /proc/keys; }
forget_keys() { keyctl clear "$(keyring)"; }

# attach PORT [NVME_ARGUMENT]...: to the closed target.
attach() { nvme connect -t tcp -a "$PEER_A" -s "$1" -n "$CLOSED" --nr-io-queues=2 "${@:2}"; }

# over_tls: the closed target's controller is connected by TLS. tls_key is the key in use, which plain controllers do not have.
over_tls() { [ -n "$(cat "/sys/class/nvme/$(controllers "$CLOSED")/tls_key")" ]; }

told() {
  dmesg | tail -n 20
  tail -n 20 /tmp/tlshd.log
}
