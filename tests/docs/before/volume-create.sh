# shellcheck shell=bash
ramport serve
mount -t tmpfs none /srv
mkdir /srv/saves
