# shellcheck shell=bash
ramport serve
mount -t tmpfs none /srv
mkdir /srv/saves
ramport volume create rd0 --size 64M
