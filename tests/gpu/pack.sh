#!/usr/bin/env bash
# pack.sh BUILD OUT [ALEXEYAB TREE]: what a machine with a GPU needs besides the libraries of CUDA, cuDNN, NCCL, C and C++ to run
# tests/gpu/run.sh, as OUT/run and OUT/files.tar.gz (make gpu-pack). ALEXEYAB is a build of the folder TREE: its program, too.
set -euo pipefail
cd "$(dirname "$0")/../.."

usage='usage: pack.sh BUILD OUT [ALEXEYAB TREE]'
build=${1:?$usage} out=${2:?$usage} alexeyab=${3:-} tree=${4:-}
train=3000 valid=1000 canvases=200 most=$((64 * 1024 * 1024))

die() {
    echo "tests/gpu/pack.sh: $*" >&2
    exit 1
}

# What is there on every machine with a GPU (see above).
THERE='^(linux-vdso|ld-linux|lib(c|m|mvec|dl|rt|pthread|resolv|util|nss_[a-z]+|stdc\+\+|gcc_s|cuda|cudart|cublas|cublasLt|curand|cudnn|nccl)\.so)'
# Other ways of Open MPI between machines, with large libraries of their own.
OTHER_WAYS='lib(ucp|ucs|uct|ucm|fabric|psm_infinipath|psm2|ibverbs|rdmacm|pmi)\.so'

# copy_plugins FROM TO
copy_plugins() {
    local plugin
    mkdir -p "$2"
    for plugin in "$1"/*.so; do
        [[ ! -f $plugin ]] || ldd "$plugin" | grep -qE "$OTHER_WAYS" || cp -L "$plugin" "$2/"
    done
}

copy_open_mpi() {
    local version plugins share pmix to=$files/mpi
    version=$(mpiexec --version | head -n 1)
    [[ $version == *'Open MPI) 4'* || $version == *'OpenRTE) 4'* ]] || die "the pack is made of Open MPI 4, and this is $version"
    plugins=$(ompi_info --parsable --path pkglibdir | sed -n 's/^path:pkglibdir://p')
    share=$(ompi_info --parsable --path pkgdatadir | sed -n 's/^path:pkgdatadir://p')
    [[ -d $plugins && -d $share ]] || die 'ompi_info names no folder with the plugins of Open MPI'
    mkdir -p "$to/bin" "$to/${share#/usr/}"
    cp -L "$(command -v orterun)" "$(command -v orted)" "$to/bin/"
    ln -s orterun "$to/bin/mpiexec"
    copy_plugins "$plugins" "$to/${plugins#/usr/}"
    cp -L "$share"/*.txt "$to/${share#/usr/}/"
    # PMIx has plugins of its own.
    pmix=$(ldd "$plugins/mca_pmix_ext3x.so" | awk '$1 ~ /^libpmix/ { print $3 }')
    copy_plugins "$(dirname "$(realpath "${pmix:-/}")")/pmix" "$to/pmix"
}

copy_programs() {
    local program
    mkdir -p "$files/bin"
    strip -o "$files/bin/darknet" "$build/bin/darknet"
    [[ -z $alexeyab ]] || strip -o "$files/bin/darknet-alexeyab" "$alexeyab/bin/darknet"
    for program in transports/nccl communicators/exchange engine/gpu_convolution; do
        mkdir -p "$files/bin/tests/${program%/*}"
        strip -o "$files/bin/tests/$program" "$build/tests/gpu/$program"
    done
    # shellcheck disable=SC2086  # may be ccache gcc
    ${CC:-gcc} -std=c11 -O2 -o "$files/bin/compare_weights" tests/tools/compare_weights.c -lm
}

copy_libraries() {
    local name path seen
    mkdir -p "$files/lib"
    # What libraries need in turn is in ldd's answer for the programs that need them.
    mapfile -t seen < <(find "$files/bin" "$files/mpi" -type f \( -perm -100 -o -name '*.so' \))
    ldd "${seen[@]}" 2>/dev/null | awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' | sort -u | while read -r name path; do
        [[ $name =~ $THERE || -e $files/lib/$name ]] || cp -L "$path" "$files/lib/$name"
    done
    find "$files/lib" "$files/mpi" -name '*.so*' -exec strip --strip-unneeded {} + 2>/dev/null || true
}

copy_data() {
    local set
    mkdir -p "$files/data/mnist" "$files/tests/gpu" "$files/cfg"
    cp tests/gpu/run.sh tests/gpu/steps "$files/tests/gpu/"
    cp cfg/mnist.data cfg/mnist_conv.cfg cfg/digits_yolo.cfg build/darknet/cfg/resnet50.cfg build/darknet/cfg/yolov3.cfg "$files/cfg/"
    [[ -z $alexeyab ]] || cp "$tree/cfg/yolov4-tiny.cfg" "$files/cfg/"
    cp data/mnist/labels.txt "$files/data/mnist/"
    head -n "$train" data/mnist/train.list >"$files/data/mnist/train.list"
    head -n "$valid" data/mnist/valid.list >"$files/data/mnist/valid.list"
    for set in train valid; do tar -cf - -T "$files/data/mnist/$set.list" | tar -xf - -C "$files"; done
    build/cpu/canvases data/mnist-idx "$files/data/detection" data/detection "$canvases" 20 1 >/dev/null
}

files=$out.new/files
rm -rf "$out.new"
mkdir -p "$files"
copy_programs
copy_open_mpi
copy_libraries
copy_data
(cd "$files" && du -sh --apparent-size ./* | sort -rh)
# The same bytes for the same files.
tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$files" -cf - . | gzip -9n >"$out.new/files.tar.gz"
cp tests/gpu/run.sh "$out.new/run"
rm -rf "$files" "$out"
mv "$out.new" "$out"
size=$(du -sb "$out" | cut -f 1)
((size <= most)) || die "$out has $size bytes, more than the 64 MiB that may be carried"
echo "$out: $(awk -v n="$size" 'BEGIN { printf "%.1f", n / 1048576 }') MiB; there: bash $out/run OUT"
