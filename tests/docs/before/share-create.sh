# shellcheck shell=bash
ramport serve --nfs 192.0.2.1
mount -t tmpfs none /srv
mkdir /srv/pub
chmod 755 /srv/pub
