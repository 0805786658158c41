# shellcheck shell=bash
ramport serve
ramport fleet create --clients 2 --size 16M --allow-any-host
