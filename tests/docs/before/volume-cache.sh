# shellcheck shell=bash
ramport serve
mount -t tmpfs none /srv
ramport volume create slow0 --file /srv/slow.img --size 2G
ramport volume create c0 --cache-of slow0 --cache-size 256M
