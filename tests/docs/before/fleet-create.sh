# shellcheck shell=bash
ramport serve
