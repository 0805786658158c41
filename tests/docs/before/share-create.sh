# shellcheck shell=bash
ramport serve --nfs 192.0.2.1
