# The tests of packages. Set by run: work.
# shellcheck shell=bash disable=SC2034,SC2154

# `make install` copies what was built, also for a user who cannot compile, and `make uninstall` takes all of it away.
test_install_and_uninstall_leave_nothing() {
    local to=$work/installed
    make install DESTDIR="$to" PREFIX=/opt/ramport CARGO=false
    [ "$(stat -c %a "$to/opt/ramport/bin/ramport")" = 755 ]
    grep -q '^ExecStart=/opt/ramport/bin/ramport serve' "$to/opt/ramport/lib/systemd/system/ramport.service"
    grep -q '^ExecStart=/opt/ramport/bin/ramport attach' "$to/opt/ramport/lib/systemd/system/ramport-attach@.service"
    "$to/opt/ramport/bin/ramport" --version
    for file in share/man/man1/ramport.1 share/man/man5/ramport.toml.5 share/bash-completion/completions/ramport; do
        [ -s "$to/opt/ramport/$file" ]
    done
    mkdir -p "$to/var/lib/ramport"
    echo definitions > "$to/var/lib/ramport/state"
    make uninstall DESTDIR="$to" PREFIX=/opt/ramport
    [ "$(find "$to" -type f)" = "$to/var/lib/ramport/state" ]
}

# Without a build there is nothing to install, and nothing is compiled.
test_installing_without_a_build_says_what_to_do() {
    mkdir -p "$work/unbuilt/scripts"
    cp Makefile "$work/unbuilt"
    cp scripts/install.sh "$work/unbuilt/scripts"
    if make --directory "$work/unbuilt" install CARGO=false > "$work/answer" 2>&1; then
        return 1
    fi
    grep 'nothing is built; run .make build. first' "$work/answer"
}

test_debug_symbols_are_kept_apart() {
    local size
    size=$(stat -c %s target/dist/tree/bin/ramport)
    # With debug symbols it has more than four times as much.
    [ $((3 * size)) -lt "$(stat -c %s target/release/ramport)" ]
    [ "$(readelf --sections target/dist/tree/bin/ramport | grep -c '[.]debug_line')" = 0 ]
    readelf --string-dump=.gnu_debuglink target/dist/tree/bin/ramport | grep 'ramport[.]debug'
    readelf --sections target/dist/ramport.debug | grep '[.]debug_line'
    # Functions keep their names in backtraces without the file.
    readelf --sections target/dist/tree/bin/ramport | grep '[.]symtab'
}

# debian_root: a minimal Debian in $work/debian, from a copy that is kept.
debian_root() {
    local kept=${XDG_CACHE_HOME:-$HOME/.cache}/ramport-packages/bookworm.tar
    if [ ! -e "$kept" ]; then
        mkdir -p "${kept%/*}"
        mmdebstrap --variant=apt --include=init-system-helpers,systemd-standalone-sysusers bookworm "${kept%.tar}.new.tar"
        mv "${kept%.tar}.new.tar" "$kept"
    fi
    mkdir "$work/debian"
    tar --extract --file "$kept" --directory "$work/debian"
}

test_the_deb_has_no_lint() {
    make deb DEB_LEVEL=1
    lintian --allow-root --fail-on error,warning target/deb/ramport_*.deb
}

test_the_deb_serves_as_its_own_user_and_keeps_its_state() {
    debian_root
    local root=$work/debian
    cp target/deb/ramport_*.deb "$root/tmp"
    chroot "$root" sh -c 'dpkg --install /tmp/ramport_*.deb'
    grep -q '^User=ramport' "$root/usr/lib/systemd/system/ramport.service" "$root/lib/systemd/system/ramport.service"
    chroot "$root" id ramport
    # systemd makes these for the unit.
    chroot "$root" install -d -m 700 -o ramport -g ramport /run/ramport /var/lib/ramport
    SOCKET=/run/ramport/ramport.sock
    start_daemon "$root" ramport:ramport /usr/bin/ramport serve --socket "$SOCKET" --state /var/lib/ramport/state --memory 64M
    serves "$root" ramport:ramport /usr/bin/ramport
    chroot "$root" dpkg --remove ramport
    [ ! -e "$root/usr/bin/ramport" ]
    [ -s "$root/var/lib/ramport/state" ]
    chroot "$root" dpkg --purge ramport
    [ ! -e "$root/var/lib/ramport" ]
}

# The rules of `make tarball` and `make oci`, with a build that takes less time than a release.
test_the_static_program_serves_in_an_empty_root() {
    CARGO_PROFILE_DEV_DEBUG=false make tarball STATIC_PROFILE=dev
    local root=$work/empty
    mkdir -p "$root/tmp"
    tar --extract --strip-components 1 --file target/dist-static/ramport-*-static.tar.gz --directory "$root"
    chmod 1777 "$root/tmp"
    [ "$(readelf --program-headers "$root/bin/ramport" | grep -c INTERP)" = 0 ]
    chroot "$root" /bin/ramport --version | grep 'RDMA in software only'
    chroot "$root" /bin/ramport fabric ls | grep 'static build'
    SOCKET=/tmp/socket
    start_daemon "$root" 65534:65534 /bin/ramport serve --socket "$SOCKET" --state /tmp/state --memory 64M
    serves "$root" 65534:65534 /bin/ramport
}

# Of the program that the test before it has made.
test_the_image_is_valid_and_serves() {
    make --old-file=tarball oci STATIC_PROFILE=dev
    local image
    image=$(echo target/dist-static/ramport-*-oci.tar)
    skopeo inspect --config "oci-archive:$image" | tee "$work/config"
    jq --exit-status '.config.User == "65532:65532" and .config.Entrypoint == ["/usr/bin/ramport"] and .config.Cmd == ["serve"]' \
        "$work/config"
    mkdir "$work/layout"
    tar --extract --file "$image" --directory "$work/layout"
    umoci unpack --image "$work/layout:$(jq --raw-output '.config.Labels["org.opencontainers.image.version"]' "$work/config")" "$work/bundle"
    local root=$work/bundle/rootfs
    [ "$(stat -c %u "$root/state")" = 65532 ]
    SOCKET=/state/ramport/ramport.sock
    start_daemon "$root" 65532:65532 /usr/bin/ramport serve --socket "$SOCKET" --state /state/state --memory 64M
    serves "$root" 65532:65532 /usr/bin/ramport
}
