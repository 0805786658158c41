# The lines that `ramport connect-line` prints, as they are printed.
# shellcheck shell=bash

test_printed_lines_connect_and_disconnect() { printed_lines_connect_and_disconnect; }
test_the_line_for_booting_connects() { the_line_for_booting_connects; }
