#!/usr/bin/env bats
# The build itself, in a copy of the tree whose path has a space in it, as an ordinary user where that is possible.

load helpers

setup_file() {
    [[ -z $SAN ]] || return 0
    # Not below build/: an ordinary user must reach it.
    where=$(mktemp -d "${TMPDIR:-/tmp}/cmn make.XXXXXX")
    tree="$where/a b"
    mkdir "$where/home"
    copy_sources "$tree"
    # What the build of the tests has compiled, except Darknet's source and one object of each rule: those are made here. All others are
    # compiled without a warning in cli/mpich.
    tar -C "$REPO" --ignore-failed-read -cf - build/darknet build/cpu/{cmn,darknet,run,generated,flags-{cmn,darknet,run,link}} 2>/dev/null |
        tar -C "$tree" -xf -
    (cd "$tree/build" && rm -rf darknet/.stamp cpu/generated cpu/{cmn/hooks/job,darknet/src/blas,darknet/examples/darknet,run/main}.o)
    as_user=(env)
    if [[ $(id -u) -eq 0 ]] && command -v setpriv >/dev/null; then
        chmod 755 "$where"
        chown -R nobody "$where"
        as_user=(setpriv --reuid=nobody --regid=65534 --clear-groups env -u CCACHE_DIR "HOME=$where/home")
    fi
    export where tree
    declare -p as_user >"$where/as_user"
    in_tree make >"$where/build.log" 2>&1 || { tail -n 20 "$where/build.log" >&2; return 1; }
}

teardown_file() {
    [[ -z ${where:-} ]] || rm -rf "$where"
}

setup() {
    [[ -z $SAN ]] || skip 'the build is tested without sanitizers'
    cd "$tree" || return 1
}

# in_tree COMMAND...: in the copy, as the user who owns it.
in_tree() {
    local as_user
    # shellcheck disable=SC1091
    source "$where/as_user"
    (cd "$tree" && "${as_user[@]}" "$@")
}

# make_here ARGUMENTS...: make there, which does not look once more for what the first one has found to be installed.
make_here() {
    in_tree make SETUP=: "$@"
}

# rebuilt: the sources that the last make compiled, from its output.
rebuilt() {
    sed -n 's/^ *CC *//p' | sort
}

# one_error PATTERN COMMAND...: COMMAND fails, with 2 if it is make's and with 1 otherwise, and apart from make's own words says one
# line, which matches.
one_error() {
    local pattern=$1 expected=1
    shift
    [[ " $* " != *' make '* ]] || expected=2
    run in_tree "$@"
    echo "status $status: $output"
    [[ $status -eq $expected ]] || return 1
    # shellcheck disable=SC2178,SC2128
    lines=$(grep -vE '^(make(\[[0-9]+\])?: | *(GET|CC|AR|LD|MAN|MNIST) |$)' <<<"$output")
    # shellcheck disable=SC2128
    [[ $(wc -l <<<"$lines") -eq 1 ]] || { echo "not one line: $lines"; return 1; }
    # shellcheck disable=SC2128
    grep -qE "$pattern" <<<"$lines"
}

@test "builds in a path with a space, as an ordinary user if possible" {
    [[ -x bin/darknet ]]
    in_tree bin/darknet cmn list | grep cmn_communicator
    for line in 'GET *build/darknet' 'PROTO *cmn/report/event.proto' 'CC *cmn/hooks/job.c' 'CC *build/darknet/src/blas.c' \
        'CC *build/darknet/examples/darknet.c' 'CC *run/main.c' 'AR *build/cpu/libcmn.a' 'LD *build/cpu/bin/darknet'; do
        grep -x " *$line" "$where/build.log"
    done
    run -1 grep -iE 'warning|error:' "$where/build.log"
}

@test "AlexeyAB's tree is found in the user's cache, and only what is built of it is removed" {
    mkdir -p "$where/my cache/darknet-cmn/alexeyab-59596d78/src"
    : >"$where/my cache/darknet-cmn/alexeyab-59596d78/src/gaussian_yolo_layer.c"
    # Only said: what a path with a space made of it once was the removal of its parent folder.
    run -0 in_tree env -u ALEXEYAB_TREE XDG_CACHE_HOME="$where/my cache" make -n V=1 TREE=alexeyab build/darknet-alexeyab/.stamp
    rm -r "$where/my cache"
    echo "$output"
    removed=$(grep -oE 'rm -r[a-z]* [^&;]*' <<<"$output" | sed 's/ *$//' | sort -u)
    [[ $removed == 'rm -rf build/darknet-alexeyab.last' ]]
    run -2 in_tree env -u ALEXEYAB_TREE XDG_CACHE_HOME="$where/my cache" make -n TREE=alexeyab
    grep -F "no tree of AlexeyAB's: set ALEXEYAB_TREE" <<<"$output"
    # What make calls $@ and $(@D) are words: no recipe removes folders by them.
    # shellcheck disable=SC2016  # make's own $
    run -1 grep -nE 'rm -r[a-z]* [^&;]*\$(\(@|@|\(CURDIR|\([A-Z_]*(TREE|DIR))' ./Makefile ./*/*.mk
}

@test "a touched header rebuilds its users, and only them; changed flags rebuild; V=1 shows commands; a second make does nothing" {
    in_tree touch cmn/data/labels.h
    make_here build/cpu/libcmn.a 2>&1 | rebuilt >"$where/rebuilt"
    [[ $(wc -l <"$where/rebuilt") -gt 3 ]]
    diff "$where/rebuilt" <(grep -rl --include='*.c' '#include "data/labels.h"' cmn | sort)
    # Objects by name: all others would be compiled, too. What is touched gets its time back.
    objects=(build/cpu/darknet/examples/darknet.o build/cpu/cmn/base/values.o)
    in_tree cp -p cmn/cmn.h "$where/cmn.h"
    in_tree touch cmn/cmn.h
    [[ $(make_here "${objects[@]}" | rebuilt) == build/darknet/examples/darknet.c ]]
    in_tree touch -r "$where/cmn.h" cmn/cmn.h
    in_tree cp -p build/cpu/flags-cmn "$where/flags"
    [[ $(make_here CFLAGS=-DSOMETHING build/cpu/cmn/base/values.o | rebuilt) == cmn/base/values.c ]]
    in_tree cp -p "$where/flags" build/cpu/flags-cmn
    run -1 grep -E '(^|/)gcc |-Icmn' "$where/build.log"
    in_tree touch cmn/base/log.c
    make_here V=1 | grep -E '^.*gcc .*-c .*cmn/base/log\.(c|o)'
    before=$(stat -c %Y.%i bin/darknet build/cpu/bin/darknet build/cpu/libcmn.a)
    run -0 in_tree make
    [[ $output != *CC* && $output != *LD* && $output != *AR* && $output != *GET* ]] || { echo "$output"; return 1; }
    [[ $(stat -c %Y.%i bin/darknet build/cpu/bin/darknet build/cpu/libcmn.a) == "$before" ]]
}

@test "make help names every target with one line" {
    printf '%s\n' all man reference dist demo test test-quick test-on soak mnist bench bench-link bench-slow-link bench-accuracy bench-large-batch \
        bench-batch-norm deps demo-detection check-patches install uninstall clean help >"$where/targets"
    run -0 in_tree make help
    diff <(awk '$1 == "make" && NF > 2 { print $2 }' <<<"$output" | grep -xFf "$where/targets" | sort) <(sort "$where/targets")
}

@test "another release: without its name one clear error, where it cannot be had a skip that says why" {
    one_error 'which release.*SUITE=trixie' make test-on
    run -0 in_tree make test-on SUITE=trixie RUN='echo trained'
    grep -qE '^SKIP: no trixie here: (debootstrap needs root|the sources are not a git checkout)$' <<<"$output"
    [[ ${lines[-1]} == '0 passed, 0 failed, 1 skipped' && $output != *trained* ]]
}

@test "install and uninstall: what is installed works, nothing is left" {
    in_tree mkdir -p "$where/dest dir"
    make_here install DESTDIR="$where/dest dir" PREFIX=/opt/cmn >/dev/null
    root="$where/dest dir/opt/cmn"
    for file in bin/darknet bin/cmn-run lib/libcmn.a lib/libdarknet.a lib/pkgconfig/cmn.pc include/darknet-cmn/cmn.h \
        include/darknet-cmn/darknet.h share/darknet-cmn/cfg/mnist_mlp.cfg share/man/man1/darknet.1 \
        share/man/man1/cmn-run.1 share/bash-completion/completions/darknet share/bash-completion/completions/cmn-run; do
        [[ -s $root/$file ]] || { echo "$file is missing"; return 1; }
    done
    "$root/bin/darknet" cmn list >/dev/null
    grep -q '^\.TH' "$root/share/man/man1/darknet.1"
    in_tree touch "$root/share/darknet-cmn/of-someone-else"
    make_here uninstall DESTDIR="$where/dest dir" PREFIX=/opt/cmn >/dev/null
    [[ $(cd "$where/dest dir" && find . -type f) == ./opt/cmn/share/darknet-cmn/of-someone-else ]]
}

@test "install where nobody may write is one clear error" {
    one_error '/proc/.*cannot be written .*; without root: make install PREFIX=.HOME/\.local$' \
        setup/place.sh install '' /proc/self build/cpu build/darknet lib
}

@test "the installed library can be linked by pkg-config" {
    command -v pkg-config >/dev/null || skip 'pkg-config is not installed'
    prefix=$(in_tree mktemp -d "${TMPDIR:-/tmp}/cmn-prefix-XXXXXX")
    make_here install PREFIX="$prefix" LIBDIR=lib/any >/dev/null
    printf '%s\n' '#include <darknet.h>' '#include <cmn.h>' 'int main(void) { return cmn_size() - 1; }' | in_tree tee "$prefix/use.c" >/dev/null
    export PKG_CONFIG_PATH=$prefix/lib/any/pkgconfig
    # shellcheck disable=SC2046
    in_tree gcc -o "$prefix/use" "$prefix/use.c" $(pkg-config --cflags --libs cmn)
    in_tree "$prefix/use"
    rm -rf "$prefix"
}

# without NAME...: puts into `path` a PATH that has every program of this machine but these.
without() {
    path=$where/programs
    rm -rf "$path"
    mkdir -m 755 "$path"
    find /bin/ /usr/bin/ /sbin/ /usr/sbin/ -maxdepth 1 ! -type d -exec ln -sft "$path" {} +
    (cd "$path" && rm -f "$@")
}

# fake NAME SCRIPT: a program of our own in that PATH.
fake() {
    rm -f "$path/$1"
    printf '#!/bin/sh\n%s\n' "$2" >"$path/$1"
    chmod 755 "$path/$1"
}

# Finds everything but OpenBLAS, and compiles nothing.
# shellcheck disable=SC2016
no_openblas='case "$*" in *openblas*) exit 1 ;; esac'

@test "plain make says what is missing and installs nothing; make deps asks for it" {
    without curl sudo
    fake gcc "$no_openblas"
    fake apt-get "touch '$where/asked'; exit 1"
    one_error "missing: libopenblas-dev \(fast matrix products\); run: make deps FOR='build' \(without root: docs/start/install.md\)\$" \
        env PATH="$path" make
    one_error "missing: libopenblas-dev .*, curl \(fetches MNIST\); run: make deps FOR='build mnist' " env PATH="$path" make mnist
    # As it was called once: "build" is no word for what to do, and installs nothing.
    run in_tree env PATH="$path" setup/install.sh build mnist
    [[ $status -eq 2 && $output == usage:* ]]
    [[ ! -e $where/asked ]]
    # As root it asks apt-get, otherwise it says what to run.
    run in_tree env PATH="$path" make deps
    [[ $status -ne 0 ]]
    grep -qE 'installing libopenblas-dev|as root, run: apt-get install .*libopenblas-dev curl.*without root' <<<"$output"
    run in_tree env PATH="$path" make demo
    [[ $status -ne 0 && $output != *' CC '* ]]
}

@test "what is missing has the names of this distribution, and the command that installs it" {
    without xz
    fake gcc "$no_openblas"
    lacks() {
        printf '%s\n' "${@:2}" >"$where/os-release"
        chmod a+r "$where/os-release"
        one_error "$1" env PATH="$path" OS_RELEASE="$where/os-release" setup/install.sh check build
    }
    lacks 'missing: xz-utils .*, libopenblas-dev .*run: make deps' ID=ubuntu ID_LIKE=debian
    lacks 'missing: xz .*, openblas-devel .*as root, run: dnf install xz openblas-devel \(without root: docs/start/install.md\)$' 'ID="rocky"' \
        'ID_LIKE="rhel centos fedora"'
    lacks 'as root, run: dnf install xz openblas-devel ' ID=fedora
    lacks 'as root, run: pacman -S --needed xz blas-openblas ' ID=arch
    lacks "missing, by Debian's names: xz-utils .*; install their counterparts; without root: docs/start/install.md" ID=void
}

@test "oneDNN is linked where it is found; where it is not a line says so, and ONEDNN=1 asks for it; ONEDNN=0 goes without" {
    run -0 in_tree make -n bin/darknet
    [[ $output == *-DONEDNN* && $output == *-ldnnl* && $output != *'oneDNN is not installed'* ]]
    run -0 in_tree make -n ONEDNN=0 bin/darknet
    [[ $output != *-DONEDNN* && $output != *-ldnnl* && $output == *build/cpu-no-onednn/* && $output != *'oneDNN is not installed'* ]]
    without curl
    # shellcheck disable=SC2016
    fake gcc 'case "$*" in *dnnl*) exit 1 ;; esac; exec /usr/bin/gcc "$@"'
    run -0 in_tree env PATH="$path" make -n bin/darknet
    [[ $output != *-DONEDNN* && $output != *-ldnnl* && $output == *'oneDNN is not installed'* ]]
    one_error 'missing: libdnnl-dev .*run: make deps' env PATH="$path" make ONEDNN=1
    one_error 'ONEDNN=yes: must be 1 or 0' make ONEDNN=yes
}

@test "each row of setup/packages says how it is known to be there, and what it is called elsewhere" {
    while read -r package purposes fedora arch there why; do
        [[ $package && $package != \#* ]] || continue
        [[ $purposes =~ ^(build|mnist|demo|tensorboard|onednn|test|suite|bench|simulate|fuzz)(,[a-z]+)*$ && $fedora && $arch && $why ]] || { echo "$package"; return 1; }
        [[ $there =~ ^(header:[a-z_/.]+|library:[a-z-]+:[a-zA-Z./-]+:[a-zA-Z_0-9]+|[a-zA-Z_0-9/.,*+-]+)$ ]] || { echo "$package: $there"; return 1; }
    done <"$REPO/setup/packages"
}

@test "what is installed by hand counts: no package, a prefix of one's own" {
    without dpkg-query dpkg apt-get
    # This machine's own cJSON is out of reach.
    # shellcheck disable=SC2016
    fake gcc 'for word; do [ "$word" != -lcjson ] || exit 1; done; exec /usr/bin/gcc "$@"'
    run -1 in_tree env PATH="$path" setup/install.sh check build
    prefix=$(in_tree mktemp -d "${TMPDIR:-/tmp}/cmn-prefix-XXXXXX")
    in_tree mkdir -p "$prefix/include/cjson" "$prefix/lib/pkgconfig"
    printf '%s\n' 'int cJSON_Parse(void) { return 0; }' | in_tree tee "$prefix/json.c" >/dev/null
    printf '%s\n' 'int cJSON_Parse(void);' | in_tree tee "$prefix/include/cjson/cJSON.h" >/dev/null
    in_tree gcc -shared -fPIC -Wl,-soname,libmine.so.1 -o "$prefix/lib/libmine.so" "$prefix/json.c"
    printf '%s\n' 'Name: libcjson' 'Description: mine' 'Version: 1' "Libs: -L$prefix/lib -lmine" "Cflags: -I$prefix/include/cjson" |
        in_tree tee "$prefix/lib/pkgconfig/libcjson.pc" >/dev/null
    ready=(env PATH="$path" PKG_CONFIG_PATH="$prefix/lib/pkgconfig")
    # It links, but would not start.
    run in_tree "${ready[@]}" setup/install.sh check build
    [[ $status -eq 1 && ${#lines[@]} -eq 1 && $output == *libmine.so.1*LD_LIBRARY_PATH*rpath* ]] || { echo "$output"; return 1; }
    in_tree ln -s libmine.so "$prefix/lib/libmine.so.1"
    in_tree "${ready[@]}" LDFLAGS="-Wl,-rpath,$prefix/lib" setup/install.sh check build
    in_tree "${ready[@]}" LD_LIBRARY_PATH="$prefix/lib" setup/install.sh check build
    run -0 in_tree "${ready[@]}" make -n all LDFLAGS="-Wl,-rpath,$prefix/lib"
    grep -q -- "-I$prefix/include .*-c -o build/cpu/cmn/report/json_log.o" <<<"$output"
    grep -q -- "-Wl,-rpath,$prefix/lib -o build/cpu/bin/darknet .* -L$prefix/lib -lmine" <<<"$output"
    fake gcc 'exec /usr/bin/gcc -nostdinc "$@"'
    run in_tree env PATH="$path" setup/install.sh check build
    [[ $status -eq 1 && $output == *'libc6-dev'*'libcjson-dev'*'uthash-dev'* ]]
    rm -rf "$prefix"
}

# fake_apt SCRIPT: an apt-get of our own, first in the path of what in_tree starts.
fake_apt() {
    in_tree mkdir -p "$where/fake"
    printf '#!/bin/sh\n%s\n' "$1" | in_tree tee "$where/fake/apt-get" >/dev/null
    in_tree chmod +x "$where/fake/apt-get"
}

# without_source COMMAND...: with no tarball kept from earlier.
without_source() {
    in_tree mv build/upstream "$where/upstream"
    in_tree touch darknet/UPSTREAM
    result=0
    "$@" || result=$?
    in_tree rm -rf build/upstream
    in_tree mv "$where/upstream" build/upstream
    return "$result"
}

@test "a tarball with a wrong checksum is one clear error" {
    [[ -d build/upstream ]] || skip 'no tarball is kept in build/upstream'
    # shellcheck disable=SC2016
    fake_apt 'case "$*" in *source*) echo other >darknet_1.orig.tar.xz ;; esac'
    without_source one_error 'orig.tar.xz.*checksum.*darknet/UPSTREAM.*DARKNET_TREE' \
        env PATH="$where/fake:$PATH" darknet/obtain.sh build/other
    [[ ! -e build/other.new ]]
}

@test "a missing network is one clear error" {
    [[ -d build/upstream ]] || skip 'no tarball is kept in build/upstream'
    fake_apt 'echo "E: Failed to fetch: Could not resolve host" >&2; exit 100'
    without_source one_error 'cannot fetch.*Could not resolve.*network.*DARKNET_TREE' \
        env PATH="$where/fake:$PATH" make SETUP=: darknet-source
    [[ ! -e build/darknet.new ]]
}

@test "DARKNET_TARBALL: Debian's file, from wherever it was brought" {
    [[ -d build/upstream ]] || skip 'no tarball is kept in build/upstream'
    without apt-get curl
    in_tree cp build/upstream/*.xz "$where/brought here.xz"
    brought=(env PATH="$path" DARKNET_TARBALL="$where/brought here.xz" darknet/obtain.sh --pristine "$where/brought")
    without_source in_tree "${brought[@]}"
    [[ -f $where/brought/src/gemm.c ]]
    echo more | in_tree tee -a "$where/brought here.xz" >/dev/null
    without_source one_error 'brought here.xz does not have the checksum' "${brought[@]}"
    without_source one_error 'none is not a file' env PATH="$path" make SETUP=: darknet-source DARKNET_TARBALL="$where/none"
}

pristine() {
    [[ -d build/upstream ]] || skip 'no tarball is kept in build/upstream'
    [[ ! -d "$where/dark net" ]] || return 0
    in_tree mkdir "$where/dark net"
    in_tree tar -xJf build/upstream/*.orig.tar.xz -C "$where/dark net" --strip-components=1
}

@test "a patch that does not apply is named, and so is one that is missing" {
    rm -rf "$where/series"
    cp -r "$tree/patches/pjreddie" "$where/series"
    echo build/none.patch >>"$where/series/series"
    sed -i 's/^-.*cudaThreadSynchronize/- another line/' "$where/series/build/cuda-13.patch"
    chmod -R a+rX "$where/series"
    run in_tree darknet/obtain.sh --patches "$where/series" "$where/patched"
    [[ $status -ne 0 && $output == *"/series/build/cuda-13.patch does not apply"* && ! -e $where/patched ]]
    cp "$tree/patches/pjreddie/build/cuda-13.patch" "$where/series/build/"
    run in_tree darknet/obtain.sh --patches "$where/series" "$where/patched"
    [[ $status -ne 0 && $output == *"/series/series lists build/none.patch, which is missing"* && ! -e $where/patched ]]
    run in_tree darknet/obtain.sh --patches "$where" "$where/patched"
    [[ $status -ne 0 && $output == *"series is missing"* ]]
}

@test "several trees are obtained at once, where no tarball is kept yet" {
    local each ids=() tarball=("$tree"/build/upstream/*.orig.tar.xz)
    in_tree mv "${tarball[0]}" "$where/"
    for each in 1 2 3; do
        in_tree env DARKNET_TARBALL="$where/$(basename "${tarball[0]}")" darknet/obtain.sh --pristine "$where/at once/$each" &
        ids+=($!)
    done
    for each in "${ids[@]}"; do wait "$each"; done
    [[ $(find "$where/at once" -name gemm.c | wc -l) -eq 3 ]]
    rm -rf "$where/at once"
}

@test "DARKNET_TREE: a pristine tree builds" {
    pristine
    in_tree env DARKNET_TREE="$where/dark net" darknet/obtain.sh "$where/from tree"
    [[ -f "$where/from tree/src/gemm.c" && -f "$where/from tree/include/darknet.h" ]]
    for folder in src include examples; do
        diff -r -x '*.py' "$where/from tree/$folder" "build/darknet/$folder"
    done
}

@test "DARKNET_TREE: a clone gives the pinned commit, whatever it has checked out" {
    command -v git >/dev/null || skip 'git is not installed'
    pristine
    in_tree cp -r "$where/dark net" "$where/clone"
    git=(in_tree git -C "$where/clone" -c user.name=a -c user.email=a@b -c safe.directory='*')
    "${git[@]}" init -q
    "${git[@]}" add -f .
    "${git[@]}" commit -qm pinned
    commit=$("${git[@]}" rev-parse HEAD)
    "${git[@]}" rm -q src/gemm.c
    "${git[@]}" commit -qm later
    in_tree cp -r darknet "$where/pinned"
    in_tree sed -i "s/^COMMIT=.*/COMMIT=$commit/" "$where/pinned/UPSTREAM"
    in_tree git clone -q --bare "$where/clone" "$where/bare"
    for clone in clone bare; do
        in_tree env DARKNET_TREE="$where/$clone" "$where/pinned/obtain.sh" --pristine "$where/from clone"
        diff -r "$tree/build/darknet/include/../src/gemm.h" "$where/from clone/src/gemm.h"
        [[ -f "$where/from clone/src/gemm.c" && -d "$where/from clone/data/labels" ]]
        run in_tree env DARKNET_TREE="$where/$clone" darknet/obtain.sh "$where/not"
        [[ $status -eq 1 && $output == *"nor a git clone that has it: "*" is missing or differs"* && ${#lines[@]} -eq 1 ]]
    done
    # Where there is no apt-get, it is fetched from Darknet's own repository.
    without apt-get
    in_tree git -C "$where/bare" config uploadpack.allowAnySHA1InWant true
    in_tree sed -i "s|^REPOSITORY=.*|REPOSITORY='file://$where/bare'|" "$where/pinned/UPSTREAM"
    in_tree env PATH="$path" "$where/pinned/obtain.sh" --pristine "$where/from repository"
    diff -r "$where/from clone" "$where/from repository"
    in_tree sed -i "s|^REPOSITORY=.*|REPOSITORY='file://$where/none'|" "$where/pinned/UPSTREAM"
    run in_tree env PATH="$path" "$where/pinned/obtain.sh" --pristine "$where/not"
    [[ $status -eq 1 && $output == *"git cannot fetch file://$where/none ("*'network'*DARKNET_TARBALL*DARKNET_TREE* && ${#lines[@]} -eq 1 ]]
    # Somebody's own changes are not passed over.
    echo '/* mine */' | in_tree tee -a "$where/clone/src/blas.c" >/dev/null
    run in_tree env DARKNET_TREE="$where/clone" "$where/pinned/obtain.sh" --pristine "$where/not"
    [[ $status -eq 1 && $output == *'src/blas.c is missing or differs'* ]] || { echo "$output"; return 1; }
}

@test "DARKNET_TREE that does not match is one clear error that names the file" {
    pristine
    echo '/* mine */' | in_tree tee -a "$where/dark net/src/gemm.c" >/dev/null
    one_error 'src/gemm.c is missing or differs' env DARKNET_TREE="$where/dark net" darknet/obtain.sh "$where/not"
    in_tree rm "$where/dark net/src/blas.c"
    one_error 'src/blas.c is missing or differs' env DARKNET_TREE="$where/dark net" darknet/obtain.sh "$where/not"
    one_error 'not a folder' make SETUP=: darknet-source DARKNET_TREE="$where/none" -B
}

@test "trains in that tree, run from a folder with a space in its name" {
    [[ -f $REPO/data/mnist/train.list ]] || skip 'data/mnist is missing: make mnist'
    in_tree mkdir -p "$where/job dir"
    (
        cd "$BATS_TEST_TMPDIR"
        small_data 100 20
        mlp_cfg batch=20 max_batches=3 >mlp.cfg
        cp -r small.data mlp.cfg train.list valid.list labels.txt mnist "$where/job dir/"
    )
    chmod -R a+rwX "$where/job dir"
    launch=("${mpiexec[@]}")
    ln -sfn "$REPO/data/mnist" "$where/job dir/mnist"
    in_tree test -r "$where/job dir/mnist/train.list" || skip 'data/mnist is not readable by an ordinary user'
    DARKNET="$tree/bin/darknet"
    (
        cd "$where/job dir"
        tree=$PWD
        in_tree timeout 60 "${launch[@]}" -n 2 "$DARKNET" classifier train small.data mlp.cfg -cmn -cmn_validate 0
    )
    [[ -s "$where/job dir/out/mlp.weights" ]]
}

@test "both kinds of image are made by the same steps, of targets and purposes that exist" {
    steps() {
        grep -oE '(apt-get|make) .*' "$REPO/setup/$1" | grep -v '[|]' | sed 's/^.*\(apt-get update\)/\1/' | grep -E '^(apt-get|make deps)'
    }
    [[ $(steps Containerfile) == "$(steps apptainer.def)" && $(steps Containerfile | wc -l) -eq 2 ]]
    purposes=$(steps Containerfile | sed -n "s/.*FOR='\([^']*\)'.*/\1/p")
    [[ $purposes == build* ]]
    for purpose in $purposes; do
        awk -v purpose=",$purpose," 'index("," $2 ",", purpose) { found = 1 } END { exit !found }' "$REPO/setup/packages"
    done
}

@test "make clean removes what was built, and nothing else" {
    in_tree cp -r build/upstream "$where/kept"
    in_tree make clean >/dev/null
    [[ ! -e build && ! -e bin ]]
    [[ -f cmn/hooks/job.c && -f Makefile ]]
}
