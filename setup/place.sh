#!/usr/bin/env bash
# place.sh install DESTDIR PREFIX BUILD DARKNET LIBDIR: copies the programs, libraries, headers, cfgs, man pages and completion below
# DESTDIR/PREFIX, and writes down every file.
# place.sh uninstall DESTDIR PREFIX: removes exactly the files that were written down, then the folders left empty.
set -euo pipefail

fail() {
    echo "$mode: $*" >&2
    exit 1
}

hint=
[[ $(id -u) -eq 0 ]] || hint="; without root: make install PREFIX=\$HOME/.local"

# place MODE SOURCE TARGET: copies a file to TARGET below the prefix.
place() {
    local reason
    reason=$(install -D -m "$1" -- "$2" "$root/$3" 2>&1) || fail "$root/$3 cannot be written (${reason#install: })$hint"
    placed+=("$3")
}

install_all() {
    local build=$1 darknet=$2 lib=$3 file
    placed=()
    place 755 "$build/bin/darknet" bin/darknet
    place 755 "$build/bin/cmn-run" bin/cmn-run
    place 644 "$build/libcmn.a" "$lib/libcmn.a"
    place 644 "$build/libdarknet.a" "$lib/libdarknet.a"
    place 644 "$build/cmn.pc" "$lib/pkgconfig/cmn.pc"
    place 644 cmn/cmn.h include/darknet-cmn/cmn.h
    place 644 "$darknet/include/darknet.h" include/darknet-cmn/darknet.h
    for file in cfg/*; do
        place 644 "$file" "share/darknet-cmn/$file"
    done
    for file in darknet cmn-run; do
        place 644 "$build/$file.1" "share/man/man1/$file.1"
        place 644 "$build/completion" "share/bash-completion/completions/$file" # bash-completion looks for the program's name
    done

    # An older version may have placed files that this one no longer has.
    if [[ -f $root/$manifest ]]; then
        while IFS= read -r file; do
            printf '%s\n' "${placed[@]}" | grep -Fxq -- "$file" || remove "$file"
        done <"$root/$manifest"
    fi
    printf '%s\n' "${placed[@]}" >"$root/$manifest" || fail "$root/$manifest cannot be written"
    echo "installed below $root"
}

# Removes one file, then its folders up to the prefix, as long as they are empty.
remove() {
    local folder
    case $1 in
        /* | *..*) fail "$root/$manifest is damaged at: $1" ;;
    esac
    rm -f -- "$root/$1" || fail "$root/$1 cannot be removed"
    folder=$(dirname "$1")
    while [[ $folder == */* ]] && rmdir -- "$root/$folder" 2>/dev/null; do
        folder=$(dirname "$folder")
    done
}

uninstall_all() {
    [[ -f $root/$manifest ]] || fail "nothing is installed below $root (no $manifest there)"
    local -a files
    local file
    mapfile -t files <"$root/$manifest"
    for file in "${files[@]}"; do
        remove "$file"
    done
    remove "$manifest"
    echo "removed from $root"
}

mode=${1:?usage: place.sh install|uninstall DESTDIR PREFIX [BUILD DARKNET LIBDIR]}
root=$2$3
manifest=share/darknet-cmn/installed
case $mode in
    install) install_all "$4" "$5" "$6" ;;
    uninstall) uninstall_all ;;
    *) echo "place.sh: no mode '$mode'" >&2; exit 2 ;;
esac
