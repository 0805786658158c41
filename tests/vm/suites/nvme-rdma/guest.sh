# Helpers inside the guest, beside those of the suite nvme-tcp.
# shellcheck shell=bash disable=SC2154

# transport_of CONTROLLER
transport_of() { cat "/sys/class/nvme/$1/transport"; }

# io_started NAME DEVICE [FIO_ARGUMENT]...: verified I/O in the background, which has begun; for io_ended.
io_started() {
  local name=$1
  rm -f "/tmp/$name".*
  (
    status=0
    verified "$@" > "/tmp/$name.out" 2>&1 || status=$?
    echo "$status" > "/tmp/$name.status"
  ) &
  eventually 60 is_busy "$2"
}

# io_ended NAME SECONDS: it has, and well.
io_ended() {
  eventually "$2" test -s "/tmp/$1.status" || {
    cat /sys/block/nvme*/inflight /sys/class/nvme/nvme*/state
    dmesg | tail -n 30
    return 1
  }
  cat "/tmp/$1.out"
  same "$(cat "/tmp/$1.status")" 0 "status of $1"
}
