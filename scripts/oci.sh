#!/usr/bin/env bash
# oci.sh: makes target/dist-static/ramport-VERSION-ARCH-oci.tar, an image in OCI layout, of the static program that tarball.sh has
# built: nothing but the program, run as user 65532. No daemon takes part. Load it with `podman load` or `skopeo copy`.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v umoci > /dev/null; then
    echo "oci: umoci is missing; install it (apt-get install umoci)" >&2
    exit 1
fi
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
arch=$(uname -m)
name=ramport-$version-$arch
[ "$arch" != x86_64 ] || arch=amd64
[ "$arch" != aarch64 ] || arch=arm64

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/root/usr/bin" "$work/root/etc"
install -d -m 700 "$work/root/state"
cp "target/dist-static/$name-static/bin/ramport" "$work/root/usr/bin/ramport"
echo 'ramport:x:65532:65532:ramport:/state:/usr/sbin/nologin' > "$work/root/etc/passwd"
echo 'ramport:x:65532:' > "$work/root/etc/group"

umoci init --layout "$work/oci"
umoci new --image "$work/oci:$version"
layer=(tar --sort=name --numeric-owner --mtime="@$(git log -1 --format=%ct)" --directory "$work/root" --file "$work/layer.tar")
"${layer[@]}" --create --owner=0 --group=0 etc usr
# The one folder that the program may write to is its own.
"${layer[@]}" --append --owner=65532 --group=65532 state
umoci raw add-layer --image "$work/oci:$version" "$work/layer.tar"
umoci config --image "$work/oci:$version" --os linux --architecture "$arch" \
    --created "$(date --utc --date="@$(git log -1 --format=%ct)" +%Y-%m-%dT%H:%M:%SZ)" \
    --author 'The ramport developers' --config.user 65532:65532 --config.workingdir / \
    --config.env RAMPORT_STATE=/state/state --config.env XDG_RUNTIME_DIR=/state --config.volume /state \
    --config.exposedports 4420/tcp --config.exposedports 3260/tcp --config.exposedports 4791/udp \
    --config.label org.opencontainers.image.title=ramport \
    --config.label "org.opencontainers.image.version=$version" \
    --config.label 'org.opencontainers.image.licenses=Apache-2.0 OR MIT' \
    --config.entrypoint /usr/bin/ramport --config.cmd serve
tar --create --sort=name --owner=0 --group=0 --numeric-owner --directory "$work/oci" \
    --file "target/dist-static/$name-oci.tar" .
ls "target/dist-static/$name-oci.tar"
