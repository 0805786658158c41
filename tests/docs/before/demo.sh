# shellcheck shell=bash
# It has a daemon of its own.
