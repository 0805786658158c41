# shellcheck shell=bash
# What the examples of a verb find that has no preparations of its own in before/.
ramport serve --nvme-tcp 192.0.2.1 --iscsi 192.0.2.1 --nfs 192.0.2.1
for volume in rd0 rd1 rd2; do ramport volume create "$volume" --size 1G; done
ramport volume snapshot rd0 --name before-upgrade
ramport target create nqn.2025-01.com.example:rd0 --volume rd0 --allow-any-host
ramport target create iqn.2025-01.com.example:rd0 --volume rd0 --allow-any-host
for share in db scratch; do ramport share create "$share" --client 192.0.2.0/24; done
ramport host create backup --address 192.0.2.7 --told-by-address
ramport referral create nvme+tcp://192.0.2.7:8009
(umask 077; echo "twelve-bytes-or-more" > secret)
