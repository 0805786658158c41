# shellcheck shell=bash
mount -t tmpfs none /srv
ramport serve
for volume in a b; do ramport volume create "$volume" --size 1G; done
ramport volume create l0 --linear a,b
