# shellcheck shell=bash
ramport serve --nvme-tcp 127.0.0.1
