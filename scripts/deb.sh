#!/usr/bin/env bash
# deb.sh: makes target/deb/ramport_VERSION_ARCH.deb and ramport-dbgsym_VERSION_ARCH.deb from what `make build` has laid out.
set -euo pipefail
cd "$(dirname "$0")/.."

for tool in dpkg-buildpackage dh; do
    if ! command -v "$tool" > /dev/null; then
        echo "deb: $tool is missing; install dpkg-dev and debhelper" >&2
        exit 1
    fi
done
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
rm -rf target/deb
mkdir -p target/deb
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source=$work/ramport
mkdir "$source"
cp -r packaging/debian "$source/debian"
cp -r target/dist/tree "$source/tree"
# The one file with debug symbols: debhelper takes them out into the -dbgsym package.
cp target/release/ramport "$source/tree/bin/ramport"
cp README.md "$source"

cat > "$source/debian/changelog" << E
ramport ($version) unstable; urgency=medium

  * Release $version. CHANGELOG.md of the source lists the changes.

 -- The ramport developers <developers@ramport.invalid>  $(date --rfc-email --utc --date="@${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}")
E
(cd "$source" && dpkg-buildpackage --build=binary --unsigned-source --unsigned-changes --no-check-builddeps) > "$work/log" 2>&1 \
    || { cat "$work/log" >&2; exit 1; }
mv "$work"/*.deb target/deb
ls target/deb/*.deb
