#!/usr/bin/env bash
# deps.sh build|test: makes sure that the system packages for building or testing are there. Installs them through
# apt where it may; otherwise says what to install.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'deps: %s\n' "$*" >&2; }

# Rust comes first: without it there is nothing to do.
if ! command -v cargo > /dev/null; then
    say "cargo is missing; install Rust from https://rustup.rs (Debian's is too old), then run this again"
    exit 1
fi

packages() {
    echo gcc libc6-dev
    if [ "$1" = test ]; then
        sed 's/#.*//' tests/*/packages crates/*/tests/packages
    fi
}

is_installed() {
    dpkg-query -W -f '${Status}' "$1" 2> /dev/null | grep -q 'ok installed'
}

if ! command -v dpkg-query > /dev/null; then
    command -v cc > /dev/null || say "a C linker (cc) is missing; install gcc with your system's package manager"
    exit 0
fi

missing=()
for package in $(packages "${1:-build}"); do
    is_installed "$package" || missing+=("$package")
done
[ "${#missing[@]}" -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if command -v sudo > /dev/null && { [ -t 0 ] || sudo -n true 2> /dev/null; }; then
        as_root=(sudo)
    else
        say "packages are missing and this user can't install them; as root: apt-get install ${missing[*]}"
        # What only tests need is skipped there, and said.
        [ "${1:-build}" = test ] && exit 0
        exit 1
    fi
fi
say "installing ${missing[*]}"
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
