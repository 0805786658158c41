# shellcheck shell=bash
ramport serve
ramport volume create a --size 1G
ramport volume create b --size 1G
ramport volume create m0 --mirror a,b
