# shellcheck shell=bash
. "$DOCUMENTS_ROOT/tests/docs/daemon.sh"
command ramport bench nvme+tcp://192.0.2.1/nqn.2025-01.com.example:rd0 --runtime 60 --iodepth 1 --poll sleep > /dev/null &
until command ramport session show 1 > /dev/null 2>&1; do sleep 0.1; done
