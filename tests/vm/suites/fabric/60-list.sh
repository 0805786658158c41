# What `ramport fabric ls` says of the adapter, and of software in either namespace.
# shellcheck shell=bash

test_the_adapter_is_listed_with_its_addresses() {
  guest << 'E'
/share/ramport fabric ls | tee /tmp/list
grep -E '^ *rxe0 +1 +Ethernet +ACTIVE +[0-9.]+ Gb/sec .* veth0 .*10\.2\.0\.1' /tmp/list
grep '^hw works' /tmp/list
# rdma_rxe has the port here.
grep '^soft does not work: cannot use UDP port 4791' /tmp/list
/share/ramport fabric ls --json > /tmp/list.json
same "$(jq -r '.devices[0].ports[0].addresses | map(select(. == "10.2.0.1" or . == "fd02::1")) | length' /tmp/list.json)" 2 addresses
same "$(jq -r '.providers[0].is_available' /tmp/list.json)" true hw
ip netns exec peer /share/ramport fabric ls | tee /tmp/list
grep '^soft works' /tmp/list
E
}

test_without_an_active_port_it_says_so() {
  guest << 'E'
ip link set veth0 down
eventually 5 bash -c "/share/ramport fabric ls | grep 'hw does not work: no port of an adapter is active'"
ip link set veth0 up
eventually 5 rxe_is_active rxe0
ip address replace "$HW_6/64" dev veth0 nodad
E
}
