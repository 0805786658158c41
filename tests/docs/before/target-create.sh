# shellcheck shell=bash
ramport serve
ramport volume create rd0 --size 50G
ramport volume create rd1 --size 50G
