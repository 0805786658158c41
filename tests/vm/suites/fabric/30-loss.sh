# Packets are lost, doubled, held back and damaged; what arrives is right all the same.
# shellcheck shell=bash

setup() { needs_modules sch_netem; }
teardown() { guest <<< untwisted; }

test_two_packets_in_a_hundred_are_lost() {
  guest << 'E'
twisted loss 2%
data_both_ways
tc -s qdisc show dev veth0 | tee /tmp/netem
grep -E 'dropped [1-9]' /tmp/netem
E
}

test_order_and_copies() { guest <<< 'twisted delay 1ms reorder 90% duplicate 2%; data_both_ways'; }

test_damage_is_seen() { guest <<< 'twisted corrupt 1%; data_both_ways'; }

test_connections_are_made_and_ended() {
  guest << 'E'
twisted loss 5%
both_ways private_data_reach_both_ends rejections_carry_their_reason disconnecting_flushes
E
}
