#!/usr/bin/env bash
# stage.sh BINARY FOLDER: lays out what an installation holds, below FOLDER/tree, and puts debug symbols into FOLDER/ramport.debug.
# `make install` and all packages copy this tree; nothing is compiled or generated later.
set -euo pipefail
binary=$1 folder=$2
cd "$(dirname "$0")/.."

tree=$folder/tree
rm -rf "$folder"
mkdir -p "$tree"/bin "$tree"/share/man "$tree"/lib/systemd/system "$tree"/share/bash-completion/completions \
    "$tree"/share/zsh/site-functions "$tree"/share/fish/vendor_completions.d

# Function names stay in the program. Lines and inlined calls go to the debug file, which debuggers and backtraces find by its
# name beside the program or by its build ID below /usr/lib/debug.
objcopy --only-keep-debug "$binary" "$folder/ramport.debug"
objcopy --strip-debug --add-gnu-debuglink="$folder/ramport.debug" "$binary" "$tree/bin/ramport"

"$binary" man "$folder/man" > /dev/null
for page in "$folder"/man/*.[1-8]; do
    install -D -m 644 "$page" "$tree/share/man/man${page##*.}/${page##*/}"
done
rm -r "$folder/man"
"$binary" completions bash > "$tree/share/bash-completion/completions/ramport"
"$binary" completions zsh > "$tree/share/zsh/site-functions/_ramport"
"$binary" completions fish > "$tree/share/fish/vendor_completions.d/ramport.fish"
cp packaging/ramport.service packaging/ramport-attach@.service "$tree/lib/systemd/system/"
