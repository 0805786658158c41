# shellcheck shell=bash
ramport serve
mount -t tmpfs none /srv
mkdir /srv/saves
# The other machine.
(command ramport --socket "$PWD/other.sock" serve --state "$PWD/other" --nvme-tcp 192.0.2.2 > other.log 2>&1 &)
until command ramport --socket "$PWD/other.sock" capacity > /dev/null 2>&1; do sleep 0.1; done
command ramport --socket "$PWD/other.sock" volume create rd0 --size 64M
command ramport --socket "$PWD/other.sock" target create nqn.2026-11.com.example:rd0 --volume rd0 --allow-any-host
for volume in rd2 rd3 rd4 rd5 rd9 rd10; do ramport volume create "$volume" --size 1G; done
ramport volume create rd8 --size 64M
ramport volume save rd8 /srv/saves/rd0-monday.save
