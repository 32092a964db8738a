#!/bin/bash
# Usage: obtain.sh [--pristine | --patches FOLDER] DEST
# Puts the pinned Darknet source, verified and (but for --pristine) patched, into
# the new folder DEST. FOLDER, patches/pjreddie by default, holds the patches and
# the file `series` with their order.
# It comes from DARKNET_TREE=dir, a pristine tree or a git clone; or from Debian's
# tarball: DARKNET_TARBALL=file, this folder, where `make dist` puts it,
# build/upstream/ or, once, the machine's own package archive; or, where there is
# no apt-get, from Darknet's own repository.
set -euo pipefail
export LC_ALL=C

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
cache=$root/build/upstream
# shellcheck source=darknet/UPSTREAM
. "$here/UPSTREAM"

work=
new=
cleanup() {
    [ -z "$work" ] || rm -rf "$work"
    [ -z "$new" ] || rm -rf "$new"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

die() {
    echo "darknet/obtain.sh: $*" >&2
    exit 1
}

# What helps where nothing can be fetched.
ways="set DARKNET_TARBALL to the file $ORIG (or put it into $cache/), or DARKNET_TREE to a Darknet tree or git clone with commit $COMMIT"

need() {
    command -v "$1" >/dev/null || die "the program '$1' is missing; install the package '$2'"
}

is_orig() {
    [ -f "$1" ] && echo "$SHA256  $1" | sha256sum --check --status -
}

keep() {
    cp "$1" "$cache/$ORIG.part"
    mv "$cache/$ORIG.part" "$cache/$ORIG"
}

# A short path without spaces, whatever $root holds.
make_work() {
    work=$(mktemp -d /tmp/darknet-obtain.XXXXXX)
}

# apt reads only the folder made here, so the machine's own lists stay as they
# are and no privilege is needed.
private_sources() {
    local file name
    mkdir -p "$work/parts" "$work/lists/partial" "$work/cache/archives/partial"
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [ -r "$file" ] || continue
        sed -nE 's/^[[:space:]]*deb(-src)?[[:space:]]/deb-src /p' "$file"
    done | sort -u >"$work/sources.list"
    for file in /etc/apt/sources.list.d/*.sources; do
        [ -r "$file" ] || continue
        name=$(basename "$file")
        sed -E 's/^Types[[:space:]]*:.*/Types: deb-src/I' "$file" >"$work/parts/$name"
    done
}

private_apt() {
    apt-get -qq -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts="$work/parts" \
        -o Dir::State::Lists="$work/lists" -o Dir::Cache="$work/cache" \
        -o APT::Sandbox::User=root -o Acquire::Languages=none \
        -o Acquire::Retries=2 -o Acquire::http::Timeout=30 -o Acquire::https::Timeout=30 "$@"
}

download() {
    local request file reason
    make_work
    private_sources
    # One broken third-party entry must not matter: the download decides.
    private_apt update >"$work/log" 2>&1 || true
    for request in "$NAME=$VERSION" "$NAME"; do
        (cd "$work" && private_apt source --download-only --only-source "$request") >>"$work/log" 2>&1 || true
        for file in "$work/$NAME"_*.orig.tar.*; do
            is_orig "$file" || continue
            keep "$file"
            return
        done
    done
    for file in "$work/$NAME"_*.orig.tar.*; do
        [ ! -f "$file" ] || die "$(basename "$file") from the package archive does not have the checksum in darknet/UPSTREAM; $ways"
    done
    reason=$(grep -E '^(E|Err|W):' "$work/log" | grep -m1 -E '[a-z]' || true)
    die "cannot fetch the source package $NAME $VERSION (${reason:-apt-get failed}); check the network, or $ways"
}

from_tarball() {
    local tarball=$cache/$ORIG
    need xz xz-utils
    # Make builds several trees at once: one of them fetches.
    mkdir -p "$cache"
    exec 9<"$cache"
    flock 9
    if [ -n "${DARKNET_TARBALL:-}" ]; then
        [ -f "$DARKNET_TARBALL" ] || die "DARKNET_TARBALL=$DARKNET_TARBALL is not a file"
        is_orig "$DARKNET_TARBALL" ||
            die "DARKNET_TARBALL=$DARKNET_TARBALL does not have the checksum in darknet/UPSTREAM: it must be Debian's $ORIG"
        keep "$DARKNET_TARBALL"
    fi
    if ! is_orig "$tarball"; then
        [ ! -f "$tarball" ] || echo "darknet/obtain.sh: $tarball has a wrong checksum, fetching it again" >&2
        download
    fi
    exec 9<&-
    tar -xJf "$tarball" -C "$new" --strip-components=1 || die "cannot unpack $tarball into $new"
}

# differs FOLDER: the first file of it that is not as in the pinned commit.
differs() {
    (cd "$1" && sha256sum --check --quiet "$here/MANIFEST" 2>/dev/null) | head -n1 | sed 's/:.*//'
}

# The pinned commit alone.
clone() {
    need git git
    make_work
    git init -q --bare "$work/clone"
    git -C "$work/clone" fetch -q --depth 1 "$REPOSITORY" "$COMMIT" 2>"$work/log" ||
        die "no apt-get here, and git cannot fetch $REPOSITORY ($(grep -m 1 . "$work/log")); check the network, or $ways"
    DARKNET_TREE=$work/clone
}

# AlexeyAB's Darknet, any commit that its patches fit.
from_alexeyab() {
    local tree=$DARKNET_TREE part
    for part in include src 3rdparty/stb/include; do
        [ -d "$tree/$part" ] || die "DARKNET_TREE=$tree looks like AlexeyAB's Darknet, but has no folder $part"
    done
    tar -C "$tree" -cf - include src 3rdparty/stb | tar -xf - -C "$new"
    cp "$tree"/LICENSE* "$new" 2>/dev/null || true
}

from_tree() {
    local bad tree=$DARKNET_TREE
    [ -d "$tree" ] || die "DARKNET_TREE=$tree is not a folder"
    bad=$(differs "$tree") || true
    # A clone may have another commit checked out, or none, but no changes of somebody's own: those are not to be passed over.
    if [ -n "$bad" ] && [ -z "$(git -C "$tree" status --porcelain -uno 2>/dev/null)" ]; then
        [ -n "$work" ] || make_work
        if git -C "$tree" archive --prefix=tree/ "$COMMIT" 2>/dev/null | tar -xf - -C "$work" 2>/dev/null; then
            tree=$work/tree
            bad=$(differs "$tree") || true
        fi
    fi
    [ -z "$bad" ] ||
        die "DARKNET_TREE=$DARKNET_TREE is not the pristine commit $COMMIT, nor a git clone that has it: $bad is missing or differs; unset DARKNET_TREE to fetch the source"
    sed -E 's/^[0-9a-f]+ [ *]//' "$here/MANIFEST" | tar -C "$tree" -cf - -T - | tar -xf - -C "$new"
    cp "$tree"/LICENSE* "$new" 2>/dev/null || true
    # Pictures of letters, for what draws boxes.
    mkdir -p "$new/data"
    cp -r "$tree"/data/labels "$new/data" 2>/dev/null || true
}

main() {
    local dest patch folder=$root/patches/pjreddie patches=() unpinned=
    case ${1:-} in
        --pristine) folder= && shift ;;
        --patches) folder=${2:?usage: obtain.sh --patches FOLDER DEST} && shift 2 ;;
    esac
    [ $# = 1 ] || die "usage: obtain.sh [--pristine | --patches FOLDER] DEST"
    if [ -n "$folder" ]; then
        [ -f "$folder/series" ] || die "$folder/series is missing: it lists the patches in their order"
        mapfile -t patches < <(sed '/^#/d; /^$/d' "$folder/series")
    fi
    dest=${1%/}
    need patch patch
    new=$dest.new
    rm -rf "$new"
    mkdir -p "$new" || die "cannot create $new"
    if [ -z "${DARKNET_TREE:-}${DARKNET_TARBALL:-}" ] && [ -f "$here/$ORIG" ]; then
        DARKNET_TARBALL=$here/$ORIG
    fi
    if [ -z "${DARKNET_TREE:-}${DARKNET_TARBALL:-}" ] && ! is_orig "$cache/$ORIG" && ! command -v apt-get >/dev/null; then
        clone
    fi
    case $folder in
        */alexeyab)
            from_alexeyab
            unpinned=" to DARKNET_TREE=${DARKNET_TREE:-}: the patches are made for commit $ALEXEYAB_COMMIT of AlexeyAB's Darknet"
            ;;
        *) if [ -n "${DARKNET_TREE:-}" ]; then from_tree; else from_tarball; fi ;;
    esac
    for patch in "${patches[@]}"; do
        [ -f "$folder/$patch" ] || die "$folder/series lists $patch, which is missing"
        patch -d "$new" -p1 -F0 --no-backup-if-mismatch -s <"$folder/$patch" >&2 ||
            die "${folder#"$root"/}/$patch does not apply${unpinned}"
    done
    rm -rf "$dest"
    mv "$new" "$dest"
    new=
}

main "$@"
