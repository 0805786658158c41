# NVMe/TCP with TLS: Linux's host with nvme-cli and tlshd, which Debian 12, whose guests the other suites have, does not contain.
# Files *-backports have a kernel with secure channel concatenation (6.16 and later), from Debian 13's backports. Files *-later have a
# guest of Debian's next release, whose nvme-cli derives keys as the specification says.
# shellcheck shell=bash disable=SC2034

# shellcheck source=tests/vm/suites/nvme-tcp/suite.sh
. "$VM_TOP/suites/nvme-tcp/suite.sh"

SUITE_GUEST_FILES=("$VM_TOP/suites/nvme-tcp/guest.sh")
# The portals of PEER_A: plain, required, allowed.
PORT_REQUIRED=4421
PORT_ALLOWED=4422
# Only the first host may use it.
CLOSED=$NQN-closed
SUITE_NAMES+=(PORT_REQUIRED PORT_ALLOWED CLOSED)

suite_start() {
  case $1 in
    *-later) image_release forky tls ;;
    *-backports) image_release trixie tls trixie-backports ;;
    *) image_release trixie tls ;;
  esac
  suite_boot <<< 'modprobe -a nvme-tcp tls; be_host; tlshd_start'
  [ "$PEER" = nvmet ] || suite_define_closed
}

suite_define_closed() {
  peer_volume_create closed "$DISK_MIB" 4096
  peer_target_create "$CLOSED" "$HOST_1"
  peer_namespace_add "$CLOSED" 1 closed
  daemon portal create "nvme+tcp://$PEER_A:$PORT"
  daemon portal create "nvme+tcp://$PEER_A:$PORT_REQUIRED?tls=required"
  daemon portal create "nvme+tcp://$PEER_A:$PORT_ALLOWED?tls=allowed"
}

needs_tls() { [ "$PEER" != nvmet ] || skip "keys of Linux's target are in its own keyring"; }

# key HASH: a key as nvme-cli generates it; 1 is SHA-256, 2 SHA-384.
key() {
  guest HASH="$1" <<< 'nvme gen-tls-key --hmac="$HASH" --hostnqn="$HOST_1" --subsysnqn="$CLOSED"' |
    grep -o 'NVMeTLSkey-1:[0-9]*:[A-Za-z0-9+/=]*:'
}

# define KEY [OTHER_KEY]: of the first host.
define() {
  daemon host set "$HOST_1" --tls-psk-file <(echo "$1") ${2:+--tls-other-psk-file <(echo "$2")}
}

# carries_data PORT HASH VERSION [NVME_ARGUMENT]...: a key of that hash function, as nvme-cli derives it with an identity of that
# version and these arguments, for the target and its discovery service.
carries_data() {
  local made
  made=$(key "$2")
  define "$made"
  guest KEY="$made" AT="$1" VERSION="$3" ARGUMENTS="${*:4}" << 'S'
forget_keys
# shellcheck disable=SC2086
insert "$KEY" "$VERSION" "$CLOSED" $ARGUMENTS
trap told ERR
attach "$AT" --tls
over_tls
disk=$(eventually 20 device 1 "$CLOSED")
verified tls "$disk" --rw=randwrite --bs=4k --iodepth=8 --size=1m
verified tls "$disk" --rw=write --bs=512k --iodepth=2 --size=4m
disconnect "$CLOSED"
S
}

# generated_keys_connect HASH: those of `host keygen`.
generated_keys_connect() {
  local made
  made=$(daemon --json host keygen --tls --hash "$1" "$HOST_1" | jq -r .secret)
  define "$made"
  guest KEY="$made" << 'S'
forget_keys
insert "$KEY" 1 "$CLOSED"
trap told ERR
attach "$PORT_REQUIRED" --tls
over_tls
disconnect "$CLOSED"
S
}

# concatenates HASH GROUP: a key is generated from the host's secret, and data pass by TLS with it.
concatenates() {
  secrets 1
  require "$1" "$2"
  auth_guest << 'S'
trap told ERR
proven --concat --dhchap-secret="$SECRET"
over_tls
disk=$(eventually 30 device 1 "$CLOSED")
verified concat "$disk" --rw=randwrite --bs=4k --iodepth=8 --size=1m
verified concat "$disk" --rw=write --bs=512k --iodepth=2 --size=4m
disconnect "$CLOSED"
S
}
