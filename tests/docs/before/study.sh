# shellcheck shell=bash
ramport serve --nvme-tcp 192.0.2.1 --nvme-rdma '192.0.2.1?rdma=soft'
ramport fleet create --clients 2 --size 16M --allow-any-host
