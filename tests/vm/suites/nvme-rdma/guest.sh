# Helpers inside the guest, beside those of the suite nvme-tcp.
# shellcheck shell=bash disable=SC2154

# transport_of CONTROLLER
transport_of() { cat "/sys/class/nvme/$1/transport"; }
