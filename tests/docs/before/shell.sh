# shellcheck shell=bash
ramport serve
echo 'cd /volumes; ls' > script
