# The smaller of the path MTUs that networks commonly make. The rest of the suite runs with 4096.
# shellcheck shell=bash

setup() { guest <<< 'link_mtu 1500; eventually 5 has_path_mtu rxe0 1024'; }
teardown() { guest <<< 'link_mtu 9000; eventually 5 has_path_mtu rxe0 4096'; }

test_an_adapter_asks_software() { guest <<< 'suite "hw:$HW_4" "soft:$SOFT_4"'; }
test_software_asks_an_adapter() { guest <<< 'suite "soft:$SOFT_4" "hw:$HW_4"'; }
test_software_asks_an_adapter_over_ipv6() { guest <<< 'suite "soft:$SOFT_6" "hw:$HW_6"'; }

# The requester says how long the packets of both ends are to be, and rdma_rxe knows nothing of the other's interface.
test_software_refuses_what_its_interface_does_not_take() {
  guest PORT=7175 << 'E'
link_mtu 9000
eventually 5 has_path_mtu rxe0 4096
ip -n peer link set veth1 mtu 1500
answered ip netns exec peer /share/fabric_ping serve soft "$SOFT_4" "$PORT"
rping -c -a "$SOFT_4" -p "$PORT" -C 1 > /tmp/rping 2>&1 || :
link_mtu 1500
eventually 5 has_path_mtu rxe0 1024
cat /tmp/rping
grep -q 'RDMA_CM_EVENT_REJECTED, error 26' /tmp/rping
rping_asks "$SOFT_4" 1
told 'served 1 rounds'
E
}
