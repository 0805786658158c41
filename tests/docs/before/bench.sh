# shellcheck shell=bash
ramport serve --nvme-tcp 192.0.2.1 --iscsi 192.0.2.1
ramport volume create rd0 --size 1G
ramport target create nqn.2025-01.com.example:rd0 --volume rd0 --allow-any-host
ramport target create iqn.2025-01.com.example:rd0 --volume rd0 --allow-any-host
# Files stand for the disks that the examples name; this /dev is not the machine's.
mkdir dev
for device in null zero random urandom; do
    touch "dev/$device"
    mount --bind "/dev/$device" "dev/$device"
done
truncate --size 64M dev/nvme1n1 dev/ram0
mount --rbind dev /dev
