# Packets are lost, doubled, held back and damaged; what arrives is right all the same.
# shellcheck shell=bash

PARTS='messages_arrive_in_order reads_and_writes_move_bytes keys_are_invalidated bulk'

teardown() { guest <<< untwisted; }

test_two_packets_in_a_hundred_are_lost() {
  guest PARTS="$PARTS" << 'E'
twisted loss 2%
# shellcheck disable=SC2086
both_ways $PARTS
tc -s qdisc show dev veth0 | tee /tmp/netem
grep -E 'dropped [1-9]' /tmp/netem
untwisted
E
}

test_order_and_copies() {
  guest PARTS="$PARTS" << 'E'
twisted delay 1ms reorder 90% duplicate 2%
# shellcheck disable=SC2086
both_ways $PARTS
untwisted
E
}

test_damage_is_seen() {
  guest PARTS="$PARTS" << 'E'
twisted corrupt 1%
# shellcheck disable=SC2086
both_ways $PARTS
untwisted
E
}

test_connections_are_made_and_ended() {
  guest << 'E'
twisted loss 5%
both_ways private_data_reach_both_ends rejections_carry_their_reason disconnecting_flushes
untwisted
E
}
