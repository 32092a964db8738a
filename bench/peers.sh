#!/usr/bin/env bash
# Measures the same work by darknet-cmn, by PyTorch's DistributedDataParallel and by ChainerMN: images/s on 1 to as many ranks as there
# are cores, and of one process with a thread for each core; for the perceptron, also of its matrix products by themselves. A step has the
# same number of images in all. A peer that is not installed is left out, and a line says so. Asserts nothing.
# With LINK the two ranks are on two nodes, namespaces of this machine (tests/hosts/cluster.bash), which are joined by a link of that
# rate; then ways to send less are compared, too.
# Usage: make bench-peers [RUNS=5] [NETS='mlp cifar yolo'] [LINK=1gbit]
# Debian's python3-torch is PyTorch; CHAINER=dir names a tree of Chainer 7 (it needs python3-numpy, -mpi4py, -filelock, -six).
set -euo pipefail
cd "$(dirname "$0")/.."

RUNS=${RUNS:-5} NETS=${NETS:-mlp cifar yolo} CORES=$(nproc) PYTHON=${PYTHON:-/usr/bin/python3}
. bench/common.bash

LINK=${LINK:-}
if [[ -n $LINK ]]; then
    # shellcheck source=tests/hosts/cluster.bash
    . tests/hosts/cluster.bash
    cluster_up 2 || { echo "bench-peers: $cluster_why" >&2; exit 1; }
    trap 'cluster_down; rm -rf "$work"' EXIT
    cluster_throttle "$LINK"
    cluster_job 1+1
    export MASTER_ADDR=10.77.0.1 GLOO_SOCKET_IFNAME=eth0
    { # common.bash calls this in place of mpiexec -n 2
        echo '#!/bin/sh'
        printf 'shift 2; exec'
        printf ' %q' "${job[@]}" -x MASTER_ADDR -x GLOO_SOCKET_IFNAME -x OPENBLAS_NUM_THREADS -x OMP_NUM_THREADS
        # shellcheck disable=SC2016  # the script's own
        echo ' "$@"'
    } >"$work/mpiexec"
    chmod +x "$work/mpiexec"
    MPIEXEC=$work/mpiexec
fi

# These are the images of a step, the steps, and those of the warm-up.
declare -A images=([mlp]=200 [cifar]=16 [yolo]=8) counted=([mlp]=200 [cifar]=5 [yolo]=10) before=([mlp]=40 [cifar]=2 [yolo]=2)
declare -A title=([mlp]=perceptron [cifar]="cifar.cfg's convolutions" [yolo]='yolov3-tiny at 224 × 224')

# cfg_of NET: writes what `train` of common.bash reads, and sets its driver. The images are few enough that all are cached before the warm-up ends.
cfg_of() {
    local source=$BUILD/../darknet/cfg/cifar.cfg
    driver=classifier
    case $1 in
        mlp) source=cfg/mnist_mlp.cfg ;;
        yolo)
            source=$BUILD/../darknet/cfg/yolov3-tiny.cfg driver=detector
            [[ -d $work/digits ]] || build/cpu/canvases data/mnist-idx "$work/digits" "$work/digits" 16 1 1 >/dev/null
            ;;
    esac
    if [[ $driver == detector ]]; then
        sed -e "s|data/detection|$work/digits|" -e "s|^backup.*|backup=$work/out|" -e /^classes/d cfg/digits.data >"$work/bench.data"
    else
        mnist_of 6000
    fi
    sed -E "s/^batch=.*/batch=${images[$1]}/; s/^(min|max)_crop=.*/\1_crop=28/; s/^learning_rate=.*/learning_rate=0.001/; s/^random=.*/random=0/;
        s/^(width|height)=416/\1=224/; s/^max_batches *=/max_batches=/; /^cmn_batch/d" "$source" >"$work/$1.cfg"
}

# ours NET RANKS THREADS, ddp NET RANKS THREADS, chainermn NET RANKS THREADS: print images/s.
ours() {
    WARM=${before[$1]} NP=$2 OPENBLAS_NUM_THREADS=$3 train "$work/$1.cfg" "${counted[$1]}" -cmn_verify 0 -cmn_batch global "${@:4}"
    jq -r --argjson n $((images[$1] * counted[$1])) '$n / (last.elapsed_time - .[0].elapsed_time)' "$work/log.json"
}

ours_bf16() { ours "$@" -cmn_mixed bf16; }
ours_fp16() { ours "$@" -cmn_compress fp16; }
ours_powersgd() { ours "$@" -cmn_compress powersgd; }

peer() {
    # shellcheck disable=SC2086
    OPENBLAS_NUM_THREADS=$4 OMP_NUM_THREADS=$4 PYTHONPATH=${CHAINER:-} $MPIEXEC -n "$3" "$PYTHON" "bench/peers/$1.py" "$2" \
        $((images[$2] / $3)) "${counted[$2]}" "${before[$2]}" "${@:5}" 2>"$work/errors" || { cat "$work/errors" >&2; return 1; }
}
ddp() { peer ddp "$@"; }
ddp_best() { peer ddp "$@" best; }
ddp_bf16() { peer ddp "$@" bf16; }
ddp_compiled() { peer ddp "$@" compiled; }
ddp_compiled_bf16() { peer ddp "$@" bf16 compiled; }
ddp_fp16() { peer ddp "$@" best fp16; }
ddp_powersgd() { peer ddp "$@" best powersgd; }
chainermn() { peer chainermn "$@"; }

# Prints the images/s of the perceptron's matrix products by themselves, which no program exceeds that calls OpenBLAS for them.
bound() {
    # shellcheck disable=SC2086
    OPENBLAS_NUM_THREADS=$3 $MPIEXEC -n "$2" "$BUILD/products" $((images[$1] / $2)) "${counted[$1]}" 784 1000 1000 10
}

declare -A name=([ours]=darknet-cmn [ours_bf16]='darknet-cmn, bf16' [ours_fp16]='darknet-cmn, sends fp16' [ours_powersgd]='darknet-cmn, PowerSGD'
    [bound]='its products by themselves' [ddp]='PyTorch DDP, as its tutorial has it' [ddp_best]='PyTorch DDP, its best' [ddp_bf16]='PyTorch DDP, bf16'
    [ddp_compiled]='PyTorch DDP, compiled' [ddp_compiled_bf16]='PyTorch DDP, compiled, bf16' [ddp_fp16]='PyTorch DDP, sends fp16'
    [ddp_powersgd]='PyTorch DDP, PowerSGD' [chainermn]=ChainerMN)
peers=()
if "$PYTHON" -c 'import torch.distributed' 2>/dev/null; then
    # PyTorch 1 compiles nothing, and its hook for PowerSGD needs a GPU. torch.compile needs Debian's g++, python3-setuptools, libtorch-dev.
    is_new() { "$PYTHON" -c 'import sys, torch; sys.exit(torch.__version__ < "2")'; }
    peers+=(ddp ddp_best ddp_bf16)
    if [[ -n $LINK ]]; then
        peers=(ddp_best ddp_fp16 ddp_bf16)
        ! is_new || peers+=(ddp_powersgd)
    elif is_new && "$PYTHON" -c 'import setuptools.command' 2>"$work/errors" && type g++ >"$work/errors"; then
        peers+=(ddp_compiled ddp_compiled_bf16)
    fi
    versions+=("PyTorch $("$PYTHON" -c 'import torch; print(torch.__version__)')")
else
    echo 'PyTorch is left out: install python3-torch' >&2
fi
if PYTHONPATH=${CHAINER:-} "$PYTHON" -c 'import filelock, mpi4py, chainermn' 2>"$work/errors"; then
    peers+=(chainermn)
else
    echo "ChainerMN is left out: CHAINER=dir names no tree that works ($(tail -n 1 "$work/errors"))" >&2
fi

ranks=2
[[ -n $LINK ]] || ranks=$(for ((n = 1; n <= CORES; n *= 2)); do echo "$n"; done)

for net in $NETS; do
    cfg_of "$net"
    programs=(ours)
    if [[ -n $LINK ]]; then
        programs+=(ours_fp16 ours_powersgd)
    elif [[ $net == mlp ]]; then
        programs+=(bound)
    fi
    ! grep -qE 'avx512_bf16|amx_bf16' /proc/cpuinfo || programs+=(ours_bf16)
    programs+=("${peers[@]}")
    for ((r = 1; r <= RUNS; r++)); do
        echo "$net: run $r of $RUNS" >&2
        for program in "${programs[@]}"; do
            for n in $ranks; do
                "$program" "$net" "$n" 1 >>"$work/$net.$program.$n.1"
            done
            [[ -n $LINK ]] || "$program" "$net" 1 "$CORES" >>"$work/$net.$program.1.$CORES"
        done
    done
done

# cell PROGRAM NET RANKS THREADS: prints images/s and, in brackets, those of darknet-cmn in the same precision on as many cores as a
# multiple.
cell() {
    local file="$work/$2.$1.$3.$4" ours=ours
    [[ -s $file ]] || return 0
    [[ $1 != *bf16 || ! -s $work/$2.ours_bf16.1.1 ]] || ours=ours_bf16
    median <"$file" | awk '{ printf $1 < 1000 ? "%.1f" : "%.0f", $1 }'
    [[ $1 == "$ours" ]] || ratios "$work/$2.$ours.$(($3 * $4)).1" "$file" | median | awk '{ printf " (%.2f)", $1 }'
}

for program in ours bound ours_fp16 ours_powersgd ours_bf16 "${peers[@]}"; do
    cells=()
    for net in $NETS; do
        for n in $ranks; do
            cells+=("${title[$net]}, $n rank$([[ $n == 1 ]] || echo s)" "$(cell "$program" "$net" "$n" 1)")
        done
        [[ -n $LINK ]] || cells+=("${title[$net]}, $CORES threads" "$(cell "$program" "$net" 1 "$CORES")")
    done
    ! compgen -G "$work/*.$program.*" >/dev/null || row images/s "${name[$program]}" "${cells[@]}"
done
results "peers${LINK:+-link}" RUNS NETS LINK
