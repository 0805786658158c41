# shellcheck shell=bash
ramport serve --nvme-tcp 192.0.2.1 --iscsi 192.0.2.1
ramport volume create rd0 --size 50G
ramport target create nqn.2025-01.com.example:rd0 --volume rd0 --allow-any-host
ramport target create iqn.2025-01.com.example:rd0 --volume rd0 --host iqn.1993-08.org.debian:01:9b8e2c
