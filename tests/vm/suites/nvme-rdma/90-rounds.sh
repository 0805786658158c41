# Connecting and disconnecting, over and over.
# shellcheck shell=bash

teardown() { guest <<< 'not_connected || disconnect'; }

test_many_rounds() { rounds_leave_nothing "${ROUNDS:-20}"; }

test_disconnect_under_io_ends_cleanly() { disconnect_under_io; }
