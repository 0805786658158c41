# shellcheck shell=bash
(umask 077; echo "twelve-bytes-or-more" > secret; ramport host keygen --json | jq -r .secret > dhchap-secret)
ramport serve
ramport target create nqn.2025-01.com.example:rd0
