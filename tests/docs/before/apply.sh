# shellcheck shell=bash
# The file of the help itself.
ramport serve
ramport apply --help | sed '1,/^A file:/d; s/^  //' > site.toml
