# The behavioural suite between any two providers.
# shellcheck shell=bash

test_an_adapter_with_itself() { guest <<< 'suite "hw:$HW_4" "hw:$HW_4"'; }
test_an_adapter_with_itself_over_ipv6() { guest <<< 'suite "hw:$HW_6" "hw:$HW_6"'; }
test_an_adapter_asks_software() { guest <<< 'suite "hw:$HW_4" "soft:$SOFT_4"'; }
test_software_asks_an_adapter() { guest <<< 'suite "soft:$SOFT_4" "hw:$HW_4"'; }
test_an_adapter_asks_software_over_ipv6() { guest <<< 'suite "hw:$HW_6" "soft:$SOFT_6"'; }
test_software_asks_an_adapter_over_ipv6() { guest <<< 'suite "soft:$SOFT_6" "hw:$HW_6"'; }
