#!/usr/bin/env bats
# What a release is made of: the tarball of `make dist`, and what debian/ says of it.

load helpers

setup() {
    enter_folder
    version=$(sed -n 's/^VERSION := //p' "$REPO/Makefile")
}

@test "make dist packs what is committed and Darknet's source, which build without git and network" {
    unset DARKNET_TREE DARKNET_TARBALL
    copy_sources source
    cd source
    git init -q .
    git add .
    git -c user.name=a -c user.email=a@b commit -qm all
    touch cmn/base/product.o
    make dist
    name=darknet-cmn-$version
    tar -xzf "build/$name.tar.gz"
    (cd "$name" && find . -type f -printf '%P\n' | sort) >packed
    { git ls-files && echo debian/changelog && sed -n 's|^ORIG=|darknet/|p' darknet/UPSTREAM; } | sort | diff - packed
    run -1 grep -E '\.([oad]|so|pyc)$|^(build|bin|data|results)/' packed
    cd "$name"
    [[ $(head -n 1 debian/changelog) == "darknet-cmn ($version-1) "* ]]
    mkdir ../shim
    for program in git apt-get curl; do
        printf '#!/bin/sh\necho "%s $*" >>%q\nexit 1\n' "$program" "$PWD/used" >../shim/$program
        chmod +x ../shim/$program
    done
    PATH=$PWD/../shim:$PATH
    make -n all >said
    grep -qE -- '-o build/[a-z-]+/bin/darknet ' said
    make darknet-source
    [[ -f build/darknet/src/gemm.c && ! -e used ]]
}

@test "the first section of CHANGELOG.md is about this version" {
    [[ $(grep -m 1 '^## ' "$REPO/CHANGELOG.md") == "## $version" ]]
}

@test "debian/control has what setup/packages names for the build, except what every build has" {
    needed=$(awk '$2 ~ /^(build|tensorboard|onednn)(,|$)/ && $1 !~ /^(gcc|make|libc6-dev|patch|xz-utils)$/ { print " " $1 "," }' "$REPO/setup/packages")
    [[ $(wc -l <<<"$needed") -gt 9 ]]
    diff <(sort <<<"$needed") <(sed -n '/^Build-Depends:/,/^Standards/s/^ / /p' "$REPO/debian/control" | sort)
}
