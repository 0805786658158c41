# shellcheck shell=bash
ramport serve
mount -t tmpfs none /srv
mkdir /srv/saves
ramport volume create rd0 --size 64M
ramport volume set rd0 --save-to /srv/saves
ramport volume save rd0
ramport volume save rd0 /srv/saves/rd0-monday.save
