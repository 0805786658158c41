# shellcheck shell=bash
(umask 077; head -c 32 /dev/urandom | base64 > token)
