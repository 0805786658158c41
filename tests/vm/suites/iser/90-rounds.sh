# Logging in and out, over and over.
# shellcheck shell=bash

teardown() { guest <<< 'not_attached "$IQN" || detach "$IQN"'; }

# Rounds take memory that the daemon keeps for those to come: about 1 MiB for each session of a round, and as much once more when a
# round's sessions begin while the last one's are being ended. When that happens is chance. A leak of what sessions take would be 40
# MiB.
test_many_rounds() {
  # shellcheck disable=SC2034  # nothing_is_left reads it
  local SUITE_MEMORY_GROWTH_MAX_KIB=$((24 * 1024))
  rounds 2
  rounds_leave_nothing "${ROUNDS:-4}"
}

SESSIONS_PER_ROUND=10

# rounds COUNT: of ten sessions each, that are there at once; then one whose disks are looked for, and read. The others' are not: that
# takes seconds under emulation. iscsiadm is started twice for all sessions of a round.
rounds() {
  guest COUNT="$1" SESSIONS="$SESSIONS_PER_ROUND" << 'G'
begun=$SECONDS
record "$IQN" "$PEER_A" node.session.scan=manual node.session.nr_sessions="$SESSIONS"
for ((round = 0; round < COUNT; round++)); do
  node "$IQN" "$PEER_A" --login > /dev/null
  same "$(sessions)" "$SESSIONS" sessions
  node "$IQN" "$PEER_A" --logout > /dev/null
  same "$(sessions)" 0 sessions
done
node "$IQN" "$PEER_A" -o delete
attach "$IQN" "$PEER_A"
by_iser "$(session "$IQN")"
dd if="$(disk 0)" of=/dev/null bs=4k count=1 iflag=direct status=none
detach "$IQN"
echo "$COUNT rounds of $SESSIONS sessions, and one of one, in $((SECONDS - begun)) s"
G
}
