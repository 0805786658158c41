# The smaller of the path MTUs that networks commonly make. The rest of the suite runs with 4096.
# shellcheck shell=bash

setup() { guest <<< 'link_mtu 1500; eventually 5 has_path_mtu rxe0 1024'; }
teardown() { guest <<< 'link_mtu 9000; eventually 5 has_path_mtu rxe0 4096'; }

test_an_adapter_asks_software() { guest <<< 'suite "hw:$HW_4" "soft:$SOFT_4"'; }
test_software_asks_an_adapter() { guest <<< 'suite "soft:$SOFT_4" "hw:$HW_4"'; }
test_software_asks_an_adapter_over_ipv6() { guest <<< 'suite "soft:$SOFT_6" "hw:$HW_6"'; }
