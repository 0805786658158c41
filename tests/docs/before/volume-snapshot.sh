# shellcheck shell=bash
ramport serve
ramport volume create rd0 --size 1G
ramport volume create rd1 --size 1G
