# shellcheck shell=bash
ramport serve --nvme-tcp 192.0.2.1
