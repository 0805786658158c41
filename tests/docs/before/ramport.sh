# shellcheck shell=bash
# The examples start the daemon.
