# The lines that `ramport connect-line` prints, as they are printed.
# shellcheck shell=bash

setup() { offer_with_chap; }
teardown() { unoffer; }

test_printed_lines_log_in_with_chap_and_out() { printed_lines_log_in_with_chap_and_out; }
