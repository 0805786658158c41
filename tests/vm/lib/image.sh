# The guest's image: a root file system, a kernel with its modules, and an
# initramfs that puts both together. Each is kept in $VM_DIR/image under a name
# that holds the hash of what it is made from, so a changed list is a new file.
#
#   root-KEY.sqfs       Debian packages of guest/packages (image_release: of another list)
#   kernel-KEY/         vmlinuz, modules.sqfs, early/ (modules of the initramfs), lacks (modules that this kernel has not)
#   initrd-KEY.cpio     busybox, early modules, guest/initramfs, guest/init
# shellcheck shell=bash

IMAGE_SUITE=bookworm
IMAGE_KERNEL_SUITE=$IMAGE_SUITE
IMAGE_KERNEL_DEFAULT=linux-image-6.12-amd64
IMAGE_KERNEL=${RAMPORT_VM_KERNEL:-$IMAGE_KERNEL_DEFAULT}
IMAGE_PACKAGE_LIST=packages
IMAGE_MODULE_LIST=modules
# So many of guest/modules are loaded by the initramfs: those of its first line.
IMAGE_EARLY_MODULES=4
IMAGE_MIRROR=${RAMPORT_VM_MIRROR:-}
IMAGE_MIRROR_DEFAULT=http://deb.debian.org/debian
IMAGE_UNUSED_DAYS_MAX=30
# A mirror that is updated meanwhile serves packages that its lists do not name, for some minutes.
IMAGE_ATTEMPTS_MAX=3
IMAGE_ATTEMPT_PAUSE_S=60

# Builds what is missing and sets IMAGE_ROOT, IMAGE_VMLINUZ, IMAGE_MODULES, IMAGE_INITRD and IMAGE_LACKS.
# shellcheck disable=SC2034  # guest_start uses them
image_ready() {
  local dir=$VM_DIR/image key lock
  mkdir -p "$dir"
  exec {lock}>"$dir/lock"
  flock "$lock"
  find "$dir" -mindepth 1 -maxdepth 1 -name '*.partial' -exec rm -rf {} +
  find "$dir" -mindepth 1 -maxdepth 1 -name '*-*' -mtime "+$IMAGE_UNUSED_DAYS_MAX" -exec rm -rf {} +

  key=$(image_key "root $IMAGE_SUITE" "$VM_TOP/guest/$IMAGE_PACKAGE_LIST")
  IMAGE_ROOT=$dir/root-$key.sqfs
  [ -e "$IMAGE_ROOT" ] || image_attempted image_build_root "$IMAGE_ROOT"

  key=$(image_key "$IMAGE_KERNEL_SUITE $IMAGE_KERNEL" "$VM_TOP/guest/$IMAGE_MODULE_LIST")
  local kernel=$dir/kernel-$key
  IMAGE_VMLINUZ=$kernel/vmlinuz IMAGE_MODULES=$kernel/modules.sqfs IMAGE_LACKS=$kernel/lacks
  [ -e "$kernel" ] || image_attempted image_build_kernel "$kernel"
  [ ! -s "$IMAGE_LACKS" ] || report_note "$IMAGE_KERNEL lacks modules; tests that need them are skipped: $(xargs < "$IMAGE_LACKS")"

  key=$(image_key "$key" "$IMAGE_ROOT" "$VM_TOP/guest/initramfs" "$VM_TOP/guest/init")
  IMAGE_INITRD=$dir/initrd-$key.cpio
  [ -e "$IMAGE_INITRD" ] || image_build_initrd "$kernel/early" "$IMAGE_INITRD"
  touch -c "$IMAGE_ROOT" "$kernel" "$IMAGE_INITRD"
  exec {lock}>&-
}

# image_release SUITE LIST [KERNEL_SUITE]: this process's guests are of that release of Debian from now on, with the packages and modules
# of guest/packages-LIST and guest/modules-LIST, and with the kernel of KERNEL_SUITE (SUITE-backports, or SUITE itself).
image_release() {
  IMAGE_SUITE=$1 IMAGE_KERNEL=linux-image-amd64 IMAGE_PACKAGE_LIST=packages-$2 IMAGE_MODULE_LIST=modules-$2
  IMAGE_KERNEL_SUITE=${3:-$1}
  IMAGE_MIRROR=${IMAGE_MIRROR:-$(image_host_mirror)}
  image_ready
}

# Where this host's own Debian packages come from.
image_host_mirror() {
  local found
  found=$(sed -n 's/^URIs: *//p; s/^deb \(\[[^]]*\] \)\?\([^ ]*\) .*/\2/p' /etc/apt/sources.list.d/debian.sources \
    /etc/apt/sources.list 2> /dev/null | grep -m 1 '/debian/*$') || :
  echo "${found:-$IMAGE_MIRROR_DEFAULT}"
}

# A hash over a word, the recipe in this file, and the contents of files (an
# image stands for itself by its name).
image_key() {
  local word=$1 file
  shift
  {
    echo "$word"
    cat "$VM_TOP/lib/image.sh"
    for file; do case $file in *.sqfs) echo "$file" ;; *) cat "$file" ;; esac; done
  } | sha256sum | cut -c 1-16
}

# The words of a list file without its comments.
image_list() { sed 's/#.*//' "$1" | tr -s ' \n' '\n' | sed '/^$/d'; }

# image_attempted COMMAND IMAGE: builds it, in a subshell with -e, and again if that fails.
image_attempted() {
  local attempt status
  for ((attempt = 1; ; attempt++)); do
    set +e
    (
      set -e
      "$@"
    )
    status=$?
    set -e
    rm -rf "$2.partial"
    [ "$status" != 0 ] || return 0
    [ "$attempt" -lt "$IMAGE_ATTEMPTS_MAX" ] || report_die "${2##*/} could not be built in $attempt attempts, the last with status $status"
    report_note "building ${2##*/} failed with status $status; again in $IMAGE_ATTEMPT_PAUSE_S s"
    sleep "$IMAGE_ATTEMPT_PAUSE_S"
  done
}

# image_debian SUITE DIR [MMDEBSTRAP_ARGUMENT]...
image_debian() {
  local suite=$1 target=$2 sources release=()
  shift 2
  mapfile -t sources < <(image_sources "$suite")
  # Packages of backports are installed only if asked for.
  [[ $suite != *-backports ]] || release=(--aptopt="APT::Default-Release \"$suite\"")
  # A mirror may be some weeks behind, which does not matter here.
  mmdebstrap --quiet --aptopt='Acquire::Retries "3"' --aptopt='Acquire::Check-Valid-Until "false"' \
    "${release[@]}" "$@" "$suite" "$target" "${sources[@]}"
}

# The sources of a release for mmdebstrap, one a line; none for those that it knows by itself.
image_sources() {
  local suite=$1 release file
  # shellcheck source=/dev/null
  release=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
  if [[ $suite == *-backports ]]; then
    # What its packages depend on is in the release itself.
    printf 'deb %s %s main\n' "$IMAGE_MIRROR" "${suite%-backports}" "$IMAGE_MIRROR" "$suite"
  elif [ -n "$IMAGE_MIRROR" ]; then
    echo "$IMAGE_MIRROR"
  elif [ "$release" = "$suite" ]; then
    # A Debian host's own sources name the mirror that it can reach.
    for file in /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list; do
      [ ! -s "$file" ] || break
    done
    echo "$file"
  fi
}

image_build_root() {
  local packages
  packages=$(image_list "$VM_TOP/guest/$IMAGE_PACKAGE_LIST" | paste -sd ,)
  report_note "building the guest's root image of $IMAGE_SUITE (once; minutes)"
  image_debian "$IMAGE_SUITE" - --variant=minbase --include="$packages" \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    --customize-hook='rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/*' \
    --customize-hook='mkdir -p "$1"/share "$1"/host' |
    mksquashfs - "$1.partial" -tar -comp lz4 -noappend -no-progress -quiet
  mv "$1.partial" "$1"
}

# The kernel package is only unpacked. Modules are stored uncompressed, since
# emulated decompression is slow.
image_build_kernel() {
  local out=$1.partial tree=$1.partial/tree version
  report_note "unpacking $IMAGE_KERNEL of $IMAGE_KERNEL_SUITE"
  mkdir -p "$out"
  image_debian "$IMAGE_KERNEL_SUITE" "$tree" --variant=extract --include="$IMAGE_KERNEL"
  # Later releases have the modules below usr/lib alone.
  mkdir -p "$tree/lib"
  [ -e "$tree/lib/modules" ] || ln -s ../usr/lib/modules "$tree/lib/modules"
  version=$(ls "$tree/lib/modules")
  # Later releases have the kernel beside its modules.
  cp "$(find "$tree/boot" "$tree/lib/modules/$version/" -maxdepth 1 -name 'vmlinuz*' 2> /dev/null | head -n 1)" "$out/vmlinuz"
  depmod -b "$tree" "$version"

  local keep=$out/keep base file
  base=$keep/usr/lib/modules/$version
  mkdir -p "$base" "$out/early"
  ln -s usr/lib "$keep/lib"
  cp "$tree/lib/modules/$version"/modules.{builtin,builtin.modinfo,order} "$base/"
  image_list "$VM_TOP/guest/$IMAGE_MODULE_LIST" | image_modules "$tree" "$version" "$out/lacks" |
    while read -r file; do
      install -D -m 644 "$file" "$base/${file#"$tree/lib/modules/$version/"}"
    done
  find "$base" -name '*.ko.xz' -exec unxz {} +
  depmod -b "$keep" "$version"
  mksquashfs "$keep" "$out/modules.sqfs" -comp lz4 -noappend -no-progress -quiet -all-root

  image_list "$VM_TOP/guest/$IMAGE_MODULE_LIST" | head -n "$IMAGE_EARLY_MODULES" | image_modules "$keep" "$version" "$out/lacks-early" |
    while read -r file; do
      cp "$file" "$out/early/"
      echo "${file##*/}" >> "$out/early/order"
    done
  [ ! -s "$out/lacks-early" ] || report_die "$IMAGE_KERNEL cannot start: it lacks $(xargs < "$out/lacks-early")"
  rm -rf "$tree" "$keep" "$out/lacks-early"
  mv "$out" "$1"
}

# image_modules TREE VERSION LACKS: from module and directory names on stdin, the files to load, in order, each once. What the kernel
# lacks is listed in the file LACKS; with the default kernel that is an error unless the entry is marked with "?".
image_modules() {
  local tree=$1 version=$2 lacks=$3 entry name
  : > "$lacks"
  while read -r entry; do
    name=${entry#\?}
    if [ -d "$tree/lib/modules/$version/kernel/$name" ]; then
      find "$tree/lib/modules/$version/kernel/$name" -name '*.ko*' -printf '%f\n' | sed 's/\.ko.*//'
    elif modprobe -d "$tree" -S "$version" --show-depends "$name" > /dev/null 2>&1; then
      echo "$name"
    elif [ "$entry" != "$name" ] || [ "$IMAGE_KERNEL" != "$IMAGE_KERNEL_DEFAULT" ]; then
      echo "$name" >> "$lacks"
    else
      report_die "$IMAGE_KERNEL has no module $name, which tests/vm/guest/$IMAGE_MODULE_LIST requires"
    fi
  done | xargs modprobe -a -d "$tree" -S "$version" --show-depends |
    awk '$1 == "insmod" && !seen[$2]++ { print $2 }'
}

image_build_initrd() {
  local early=$1 out=$2.partial
  mkdir -p "$out/tree"/{bin,dev,proc,sys,modules,lower/root,lower/modules,upper,early}
  unsquashfs -cat "$IMAGE_ROOT" usr/bin/busybox > "$out/tree/bin/busybox"
  cp "$early"/* "$out/tree/early/"
  cp "$VM_TOP/guest/initramfs" "$out/tree/init"
  cp "$VM_TOP/guest/init" "$out/tree/guest-init"
  chmod 755 "$out/tree/bin/busybox" "$out/tree/init" "$out/tree/guest-init"
  (cd "$out/tree" && find . | cpio -o -H newc --quiet) > "$out/initrd"
  mv "$out/initrd" "$2"
  rm -rf "$out"
}
