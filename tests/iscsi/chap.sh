# CHAP: one way and mutual, for discovery too; secrets are nowhere to be read.
# shellcheck shell=bash

me=iqn.2007-10.com.github:sahlberg:libiscsi:iscsi-inq
lister=iqn.2007-10.com.github:sahlberg:libiscsi:iscsi-ls
target=iqn.2025-01.io.ramport:chap
secret="open-sesame-please"
back=and-the-other-way
printf '%s\n' "$secret" > "$WORK/secret"
everyones=known-to-everyone
printf '%s\n' "$back" > "$WORK/back"
printf '%s\n' "$everyones" > "$WORK/open"
chmod 600 "$WORK/secret" "$WORK/back" "$WORK/open"
ramport volume create rd0 --size 64M
"$RAMPORT" host create "$me" --chap-user alice --chap-secret-file - < "$WORK/secret" > /dev/null
ramport host create "$lister" --chap-user lister --chap-secret-file "$WORK/secret"
ramport target create "$target" --volume rd0 --host "$me" --host "$lister"
address=${PORTALS[0]#iscsi://}

refused "Authentication failure(513)" iscsi-inq "iscsi://$address/$target/0"
refused "Authentication failure(513)" iscsi-inq "iscsi://alice%wrong-wrong-wrong@$address/$target/0"
refused "Authentication failure(513)" iscsi-inq "iscsi://bob%$secret@$address/$target/0"
iscsi-inq "iscsi://alice%$secret@$address/$target/0" > "$WORK/out" 2>&1 || fail "$(cat "$WORK/out")"
refused "Authentication failure(513)" iscsi-ls "iscsi://$address"
iscsi-ls "iscsi://lister%$secret@$address" > "$WORK/out" 2>&1 || fail "$(cat "$WORK/out")"
expect "$target" "$WORK/out"

# Mutual: the target proves its own secret, and an initiator that expects another one leaves.
ramport host set "$me" --chap-user alice --chap-secret-file "$WORK/secret" \
    --mutual-user ours --mutual-secret-file "$WORK/back"
iscsi-inq "iscsi://alice%$secret@$address/$target/0?target_user=ours&target_password=$back" > "$WORK/out" 2>&1 \
    || fail "$(cat "$WORK/out")"
refused "Invalid CHAP_R response from the target" iscsi-inq "iscsi://alice%$secret@$address/$target/0?target_user=ours&target_password=something-else"

# A target for any host has a secret for all that have none of their own.
ramport target create "$target-open" --allow-any-host --volume rd0 --chap-user anyone --chap-secret-file "$WORK/open" \
    --mutual-user ours --mutual-secret-file "$WORK/back"
open="$address/$target-open/0"
iscsi-inq "iscsi://alice%$secret@$open?target_user=ours&target_password=$back" > "$WORK/out" 2>&1 || fail "$(cat "$WORK/out")"
refused "Authentication failure(513)" iscsi-inq "iscsi://anyone%$everyones@$open"
refused "Authentication failure(513)" iscsi-readcapacity16 "iscsi://$open"
refused "Authentication failure(513)" iscsi-readcapacity16 "iscsi://anyone%$secret@$open"
iscsi-readcapacity16 "iscsi://anyone%$everyones@$open" > "$WORK/out" 2>&1 || fail "$(cat "$WORK/out")"
iscsi-readcapacity16 "iscsi://anyone%$everyones@$open?target_user=ours&target_password=$back" > "$WORK/out" 2>&1 \
    || fail "$(cat "$WORK/out")"
refused "Invalid CHAP_R response from the target" iscsi-readcapacity16 "iscsi://anyone%$everyones@$open?target_user=ours&target_password=something-else"

# Nothing tells a secret, and an export can be applied again.
for verb in ls export "host ls" "host show $me" "--json host ls" "--json ls" "target show $target-open" "--json target ls"; do
    # shellcheck disable=SC2086 # a verb has several words
    ! "$RAMPORT" $verb | grep -qE "$secret|$back|$everyones" || fail "\`ramport $verb\` tells a secret"
done
! grep -qE "$secret|$back|$everyones" "$WORK/log" || fail "the log tells a secret"
"$RAMPORT" export > "$WORK/export.toml"
ramport apply "$WORK/export.toml"
iscsi-inq "iscsi://alice%$secret@$address/$target/0" > "$WORK/out" 2>&1 || fail "the secret is lost: $(cat "$WORK/out")"
iscsi-readcapacity16 "iscsi://anyone%$everyones@$open" > "$WORK/out" 2>&1 || fail "the secret is lost: $(cat "$WORK/out")"
ramport host set "$me" --no-chap
iscsi-inq "iscsi://$address/$target/0" > "$WORK/out" 2>&1 || fail "$(cat "$WORK/out")"
