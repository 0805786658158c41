# shellcheck shell=bash
(umask 077; echo "twelve-bytes-or-more" > secret)
ramport serve
ramport target create nqn.2025-01.com.example:rd0
