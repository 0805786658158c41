#!/usr/bin/env bash
# install.sh install|uninstall: copies the tree that `make build` has laid out to $DESTDIR$PREFIX, or removes its files from there.
# Builds nothing, so that root compiles nothing. Keeps the state of the daemon.
set -euo pipefail
cd "$(dirname "$0")/.."
tree=target/dist/tree
prefix=${PREFIX:?} to=${DESTDIR:-}${PREFIX}

if [ ! -x "$tree/bin/ramport" ]; then
    echo "install: nothing is built; run \`make build\` first, as your own user" >&2
    exit 1
fi
cd "$tree"
case $1 in
    install)
        find . -type f -printf '%P\n' | while read -r file; do
            mode=644
            [ "$file" != bin/ramport ] || mode=755
            install -D -m "$mode" "$file" "$to/$file"
        done
        sed -i "s|/usr/local/bin|$prefix/bin|" "$to"/lib/systemd/system/ramport*.service
        ;;
    uninstall)
        find . -type f -printf '%P\n' | while read -r file; do
            rm -f "$to/$file"
        done
        # Folders that hold nothing else go, too.
        find . -mindepth 1 -depth -type d -printf '%P\n' | while read -r folder; do
            rmdir --ignore-fail-on-non-empty "$to/$folder" 2> /dev/null || :
        done
        echo "uninstall: state below /var/lib/ramport is kept; remove it by hand if you want to lose it"
        ;;
    *)
        echo "install: give install or uninstall" >&2
        exit 2
        ;;
esac
