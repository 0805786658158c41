# shellcheck shell=bash
ramport serve --nvme-tcp 192.0.2.1
ramport fleet create --clients 1 --size 16M --allow-any-host
command ramport fleet run --sweep runtime=100ms --warm-up 0 --counts n1.counts
jq '.measured[].nodes[].node = "n2"' n1.counts > n2.counts
