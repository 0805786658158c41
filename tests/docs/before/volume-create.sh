# shellcheck shell=bash
ramport serve
mount -t tmpfs none /srv
mkdir /srv/saves
for volume in rd2 rd3 rd4 rd5; do ramport volume create "$volume" --size 1G; done
