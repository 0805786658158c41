# Delegations with Linux's client. /mnt/db is mounted as 4.2 and /mnt/other as 4.1: each is a client of its own, with its own back channel.
# shellcheck shell=bash

setup() {
  guest << 'E'
mounted4 4.2 db db
mounted4 4.1 db other
E
}

teardown() { guest <<< 'umount -f /mnt/db /mnt/other'; }

# The most files that are delegated to a client of the guest.
delegated() { daemon --json session ls | jq '[.[].nfs.clients // [] | .[].delegations] | max // 0'; }

test_a_reader_has_a_delegation_until_another_client_writes() {
  local id
  guest << 'E'
echo first > /mnt/db/file
same "$(cat /mnt/db/file)" first "content"
E
  [ "$(delegated)" -eq 1 ]
  id=$(sessions_of db | head -n 1)
  daemon session show "$id" | grep 'delegations 1'
  guest << 'E'
opens() { awk '/^device .* \/mnt\/db / { is_it = 1 } is_it && $1 == "OPEN:" { print $2; exit }' /proc/self/mountstats; }
before=$(opens)
for _ in $(seq 20); do cat /mnt/db/file > /dev/null; done
same "$(($(opens) - before))" 0 "opens that were sent to the server"
echo second > /mnt/other/file
same "$(cat /mnt/db/file)" second "content"
for round in $(seq 5); do
  echo "round $round" > /mnt/other/file
  same "$(cat /mnt/db/file)" "round $round" "content"
  echo "again $round" > /mnt/db/file
  same "$(cat /mnt/other/file)" "again $round" "content"
done
rm /mnt/db/file
E
}

test_changes_of_names_and_attributes_recall_it() {
  guest << 'E'
for name in a b c; do echo "$name" > "/mnt/db/$name"; done
for name in a b c; do cat "/mnt/db/$name" > /dev/null; done
E
  [ "$(delegated)" -eq 3 ]
  guest << 'E'
chmod 600 /mnt/other/a
mv /mnt/other/b /mnt/other/d
rm /mnt/other/c
# Attributes are as old as with any file until it is opened.
cat /mnt/db/a > /dev/null
same "$(stat -c %a /mnt/db/a)" 600 "mode"
same "$(cat /mnt/db/d)" b "content"
E
  guest <<< 'rm /mnt/db/a /mnt/db/d'
  [ "$(delegated)" -eq 0 ]
}

test_a_client_of_version_3_recalls_it() {
  guest << 'E'
echo first > /mnt/db/file
cat /mnt/db/file > /dev/null
E
  [ "$(delegated)" -eq 1 ]
  guest << 'E'
mkdir -p /mnt/old
mount -t nfs -o "vers=3,proto=tcp,port=$PORT,mountport=$PORT,mountproto=tcp,nolock" "$PEER_A:/db" /mnt/old
echo second > /mnt/old/file
same "$(cat /mnt/db/file)" second "content"
umount /mnt/old
rm /mnt/db/file
E
}
