# Who may do what, as Linux's client learns it.
# shellcheck shell=bash

setup() { mount_share; }
teardown() { unmount_share; }

test_permissions_of_users() {
  guest << 'E'
cd /mnt/db
chmod 755 .
refused "Permission denied" as_user touch mine
mkdir -m 1777 shared
as_user touch shared/of-user
same "$(stat -c %u:%g shared/of-user)" "$USER_ID:$USER_ID" "owner"
touch shared/of-root
refused "not permitted" as_user rm -f shared/of-root
echo secret > shared/secret
chmod 600 shared/secret
refused "Permission denied" as_user cat shared/secret
chown "$USER_ID" shared/secret
as_user cat shared/secret
refused "not permitted" as_user chown 0 shared/secret
rm -r shared
E
}

test_root_is_squashed() {
  guest <<< 'mounted squashed; refused "Permission denied" touch /mnt/squashed/of-root'
  daemon share set squashed --options no_root_squash
  guest <<< 'chmod 1777 /mnt/squashed'
  daemon share set squashed --options root_squash
  guest << 'E'
touch /mnt/squashed/of-root
same "$(stat -c %u:%g /mnt/squashed/of-root)" 65534:65534 "owner"
refused "not permitted" chown 0 /mnt/squashed/of-root
umount /mnt/squashed
E
}

test_a_read_only_share_refuses_writes() {
  guest <<< 'echo content > /mnt/db/file'
  daemon share set db --options ro
  guest << 'E'
refused "Read-only file system" touch /mnt/db/late
refused "Read-only file system" rm /mnt/db/file
same "$(cat /mnt/db/file)" content "the file"
E
  daemon share set db --options rw
  guest <<< 'rm /mnt/db/file'
}

test_an_address_that_is_not_allowed_is_refused() {
  guest <<< 'refused "access denied" mounted others'
  daemon share set db --client 192.0.2.0/24
  guest <<< 'refused "Permission denied" touch /mnt/db/denied'
  daemon share set db --client 10.77.0.0/24
  guest <<< 'touch /mnt/db/allowed; rm /mnt/db/allowed'
}

test_a_port_that_anybody_may_use_is_refused() {
  guest << 'E'
refused "access denied" mounted squashed noresvport
E
  daemon share set squashed --options insecure
  guest <<< 'mounted squashed noresvport; umount /mnt/squashed'
  daemon share set squashed --options secure
}
