# shellcheck shell=bash
ramport serve --nvme-tcp 192.0.2.1 --nvme-rdma 192.0.2.1 --iscsi 192.0.2.1
