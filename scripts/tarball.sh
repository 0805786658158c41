#!/usr/bin/env bash
# tarball.sh PROFILE: builds a statically linked program with cargo's PROFILE (release, or dev for tests) and makes
# target/dist-static/ramport-VERSION-ARCH-static.tar.gz of it, its manual pages, completions, unit and licences.
# The program runs on any Linux. It cannot load rdma-core, so it has RDMA in software only,
# nor OpenSSL, so it has no TLS.
set -euo pipefail
cd "$(dirname "$0")/.."
profile=$1
arch=$(uname -m)
target=$arch-unknown-linux-musl

if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$target" ]; then
    if ! command -v rustup > /dev/null || ! rustup target add "$target"; then
        echo "tarball: Rust's standard library for $target is missing; install it with: rustup target add $target" >&2
        exit 1
    fi
fi
# Parts in C and assembler (ring) need no header of a C library, so the usual compiler will do.
compiler=CC_${target//-/_}
export "$compiler=${!compiler:-gcc}"
"${CARGO:-cargo}" build --profile "$profile" --package ramport --target "$target"
folder=$profile
[ "$profile" != dev ] || folder=debug

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
name=ramport-$version-$arch-static
scripts/stage.sh "target/$target/$folder/ramport" target/dist-static
mv target/dist-static/tree "target/dist-static/$name"
cp README.md LICENSE-APACHE LICENSE-MIT "target/dist-static/$name"
# The same input makes the same file.
tar --create --gzip --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$(git log -1 --format=%ct)" \
    --directory target/dist-static --file "target/dist-static/$name.tar.gz" "$name"
ls "target/dist-static/$name.tar.gz"
