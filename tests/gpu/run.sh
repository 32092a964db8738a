#!/usr/bin/env bash
# What only a GPU can show: the steps of tests/gpu/steps. Several ranks share one GPU where there are no more. Docs:
# tests/gpu/README.md.
#
#   run.sh                  all of them, as TAP; it needs a build, data/mnist and little else. Without a GPU it skips, saying why;
#                           where nvidia-smi lists one, what is missing is a failure
#   run.sh OUT [STEP...]    all, or these, in ten minutes. What a step prints goes into OUT/log at once, so a machine that is taken
#                           away leaves what was seen until then; a step that fails or hangs stops no other. At the end of the log
#                           is a line for each
#
# It is `run` in the pack of `make gpu-pack`, too, which needs nothing of the machine but a driver and CUDA's libraries.
# Environment:
#   DARKNET, DARKNET_ALEXEYAB          GPU builds of both trees (else those below build/); ALEXEYAB_TREE is the latter's source
#   MPIEXEC, COMPARE_WEIGHTS           else mpiexec, and compiled here
#   GPU_TEST_ONLY                      functions below (else those of tests/gpu/steps)
#   GPU_TEST_TMP                       a folder that stays: a later run finds weights, and the way to share a GPU, of an earlier one
#   GPU_TEST_REQUIRED                  fail where there is no GPU
#   GPU_TEST_LIMIT                     seconds of a training
#   GPU_TEST_PROGRAMS                  the folder of the tests of the exchange that make gpu-tests compiles
#   GPU_TEST_ACCURACY, GPU_TEST_EPOCHS what MNIST must reach, and in how many
#   GPU_PLAN, GPU_PLAN_SECONDS         with OUT: a file with other steps; seconds for everything (570)
#   CUDA_LIBRARIES                     in the pack: folders to be looked through first
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) root='' out=''
if (($#)) || [[ -f $here/files.tar.gz ]]; then
    out=${1:-gpu-results}
    mkdir -p "$out"
    out=$(cd "$out" && pwd)
fi
count=0 failed=0 mps_control=
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true)

# ---- the pack ----

# Folders with CUDA's libraries: those in the linker's cache, of the toolkit, of the driver, and of Python's packages.
cuda_folders() {
    local python
    tr ':' '\n' <<<"${CUDA_LIBRARIES:-}"
    ldconfig -p 2>/dev/null | sed -nE 's,^\s*lib(cuda|cudart|cublas|curand|cudnn|nccl)\.so\.[0-9]+ .* => (.*)/.*,\2,p'
    ls -d /usr/local/cuda*/lib64 /usr/local/cuda*/targets/x86_64-linux/lib /usr/local/nvidia/lib64 /usr/local/nvidia/lib \
        /usr/lib/x86_64-linux-gnu/nvidia/current 2>/dev/null || true
    for python in python3 /opt/*/.venv/bin/python3; do
        "$python" -c 'import glob, nvidia; print(*(f for p in nvidia.__path__ for f in glob.glob(p + "/*/lib")), sep="\n")' \
            2>/dev/null || true
    done
}

# Unpacks it, once, and uses what is in it.
use_pack() {
    root=${TMPDIR:-/tmp}/gpu-pack-$(cksum <"$here/files.tar.gz" | tr -d ' ')
    if [[ ! -d $root ]]; then
        rm -rf "$root.new"
        mkdir -p "$root.new"
        tar -xzf "$here/files.tar.gz" -C "$root.new"
        mv "$root.new" "$root"
    fi
    export DARKNET=$root/bin/darknet DARKNET_ALEXEYAB=$root/bin/darknet-alexeyab COMPARE_WEIGHTS=$root/bin/compare_weights
    export GPU_TEST_PROGRAMS=$root/bin/tests
    # Of 3000 images.
    export GPU_TEST_ACCURACY=${GPU_TEST_ACCURACY:-0.95} GPU_TEST_EPOCHS=${GPU_TEST_EPOCHS:-20}
    # Open MPI, somewhere else than where it was built for. There may be no ssh, and none is needed.
    export OPAL_PREFIX=$root/mpi PMIX_MCA_mca_base_component_path=$root/mpi/pmix PATH=$root/mpi/bin:$PATH
    export OMPI_MCA_plm=isolated OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader OMPI_MCA_btl_vader_single_copy_mechanism=none
    LD_LIBRARY_PATH=$root/lib:$(cuda_folders | awk '/./ && !seen[$0]++' | paste -s -d :)
    export LD_LIBRARY_PATH
}

# ---- what the steps are made of ----

# The first of these programs that is there; fails where none is.
first_of() {
    local program
    for program in "$@"; do command -v "$program" && return; done
    return 1
}

# report WHAT RESULT [LOG]: RESULT is ok, "skip WHY", or what is wrong.
report() {
    count=$((count + 1))
    case $2 in
        ok) echo "ok $count - $1" ;;
        skip*) echo "ok $count - $1 # SKIP ${2#skip }" ;;
        *)
            failed=$((failed + 1))
            echo "not ok $count - $1: $2"
            if [[ -f ${3:-} ]]; then tail -n 15 "$3" | sed 's/^/#   /'; fi
            ;;
    esac
}

# needs_nccl WHAT: fails, and reports WHAT as skipped, where NCCL does not run here.
needs_nccl() {
    [[ -z $why_not ]] || { report "$1" "skip $why_not"; return 1; }
}

# on RANKS COMMAND...: on so many ranks; what they say goes into log.
on() {
    timeout --kill-after=5 "$GPU_TEST_LIMIT" "${mpiexec[@]}" -n "$1" "${wrapper[@]}" "${@:2}" >log 2>&1
}

# go_on RANKS CFG ARGUMENTS...: trains, with what lies in out.
go_on() {
    on "$1" "$DARKNET" "${command[@]}" "$2.cfg" -cmn -cmn_seed 7 -cmn_validate 0 -cmn_batch global -cmn_verify 5 "${@:3}"
}

# train RANKS CFG ARGUMENTS...: from the beginning; the weights to out/CFG.weights.
train() {
    rm -f out/*
    go_on "$@" || return
    [[ ! -f out/$2_final.weights ]] || mv "out/$2_final.weights" "out/$2.weights"
}

# trains WHAT RANKS CFG ARGUMENTS...: the same; a training that fails is reported as WHAT, with what the log says of it. The
# stand-in for a GPU has not all of Darknet's kernels, nor each GPU bf16.
trains() {
    ! train "${@:2}" || return 0
    report "$1" "$(grep -m 1 -e '^the stand-in for a GPU has no' -e 'GPUs have bf16 from' log | sed 's/^/skip /' | grep . ||
        grep -m 1 '^cmn\[' log || echo 'it does not train')" log
    return 1
}

# keeps NAME WHAT RANKS CFG ARGUMENTS...: the same; the weights to NAME.weights.
keeps() {
    trains "${@:2}" && mv "out/$4.weights" "$1.weights"
}

# near FILE LIMIT WHAT CFG [LEAST]: reports whether the weights just written differ from FILE by less than LIMIT.
near() {
    local text d
    text=$("$COMPARE_WEIGHTS" "$1" "out/$4.weights" 2>&1) || true
    d=$(sed -n 's/^relative-l2 //p' <<<"$text" | grep . || echo "no comparison: $text")
    if awk -v d="$d" -v most="$2" -v least="${5:--1}" 'BEGIN { exit !(d ~ /^[0-9]/ && d + 0 < most + 0 && d + 0 > least + 0) }'; then
        report "$3 (relative L2 $d)" ok
    else
        report "$3" "relative L2 $d, limit $2${5:+ and more than $5}" log
    fi
}

# trains_as FILE LIMIT WHAT RANKS CFG ARGUMENTS...
trains_as() {
    ! trains "${@:3}" || near "$1" "$2" "$3" "$5"
}

# side_by_side CFG LIMIT: one rank on the CPU, and one on a GPU, whose weights stay as one-CFG.weights.
side_by_side() {
    keeps "cpu-$1" "$1.cfg on the CPU, by the GPU build" 1 "$1" -nogpu -cmn_communicator flat || return 0
    trains_as "cpu-$1.weights" "$2" "$1.cfg on a GPU gives the weights of the CPU" 1 "$1"
    cp "out/$1.weights" "one-$1.weights" 2>/dev/null || true
}

# has_program NAME WHAT: a test of the exchange, compiled against CUDA and NCCL, to $program; fails, and reports WHAT as skipped,
# where it cannot run.
has_program() {
    program=${GPU_TEST_PROGRAMS:-$(dirname "$DARKNET")/../tests/gpu}/$1
    needs_nccl "$2" || return
    [[ -x $program ]] || { report "$2" 'skip it is not built: make gpu-tests'; return 1; }
}

# tests_pass NAME RANKS: those of one of these programs.
tests_pass() {
    local program what="$1 on $2 ranks"
    has_program "$1" "$what" || return 0
    if CMOCKA_MESSAGE_OUTPUT=TAP on "$2" "$program"; then
        report "$what ($(grep -c '^ok [^#]*$' log) tests)" ok
    else
        report "$what" "$(grep -m 1 -A 3 '^not ok' log | tr '\n' ' ' | grep . || tail -n 1 log)" log
    fi
}

# ---- what there is, and how ranks share a GPU ----

skip_all() {
    echo 1..1
    if ((gpus)) || [[ -n $GPU_TEST_REQUIRED ]]; then
        report 'training on a GPU' "$( ((gpus)) && echo 'there is one, but ')$1"
        exit 1
    fi
    report 'training on a GPU' "skip $1"
    exit 0
}

find_program() {
    local newest said
    if [[ -z ${DARKNET:-} ]]; then
        for newest in build/gpu*/bin/darknet; do
            [[ ! -x $newest || $newest == *-alexeyab* || ! $newest -nt ${DARKNET:-/} ]] || DARKNET=$root/$newest
        done
    fi
    [[ -n ${DARKNET:-} ]] || skip_all 'there is no GPU build: make GPU=1 CUDNN=1 NCCL=1'
    [[ -x $DARKNET ]] || skip_all "$DARKNET is no program"
    # The GPU is looked for before any file is read.
    said=$("$DARKNET" classifier train -i 99 no.data no.cfg 2>&1 </dev/null) || true
    [[ $said != *'error while loading'* ]] || skip_all "${said%%$'\n'*}"
    [[ $said == *'GPU 99 cannot be used'* ]] || skip_all "$DARKNET is a build for the CPU"
    said=$("$DARKNET" classifier train no.data no.cfg 2>&1 </dev/null) || true
    [[ $said != *'cannot be used'* ]] || skip_all "${said%%$'\n'*}"
    command -v "${mpiexec[0]}" >/dev/null || skip_all "${mpiexec[0]} is not installed"
    [[ -f data/mnist/train.list ]] || skip_all 'data/mnist is missing: make mnist'
    if [[ -z ${COMPARE_WEIGHTS:-} ]]; then
        COMPARE_WEIGHTS=$work/compare_weights
        # shellcheck disable=SC2086  # may be ccache gcc
        ${CC:-gcc} -std=c11 -O2 -o "$COMPARE_WEIGHTS" tests/tools/compare_weights.c -lm ||
            skip_all 'no C compiler for compare_weights'
    fi
}

prepare() {
    local last=('[connected]' output=10 activation=linear '[softmax]')
    cd "$work"
    ln -sfn "$root/data" data
    mkdir -p out
    head -n 2000 "$root/data/mnist/train.list" >train.list
    { cat data/mnist/labels.txt; seq -f 'none-%.0f' 990; } >1000.labels
    printf '%s\n' classes=10 train=train.list valid=data/mnist/valid.list labels=data/mnist/labels.txt backup=out top=1 >small.data
    sed 's/^classes.*/classes=1000/; s/^labels.*/labels=1000.labels/' small.data >labels-1000.data
    printf '%s\n' classes=10 train=data/detection/train.list valid=data/detection/valid.list names=data/detection/digits.names \
        backup=out >boxes-10.data
    sed 's/^classes.*/classes=80/' boxes-10.data >boxes-80.data
    printf '%s\n' '[net]' batch=64 subdivisions=1 height=28 width=28 channels=1 min_crop=28 max_crop=28 angle=0 hue=0 \
        saturation=1 exposure=1 aspect=1 flip=0 threads=1 momentum=0.9 decay=0.0005 learning_rate=0.02 policy=constant \
        max_batches=20 >net.part
    printf '%s\n' "${last[@]}" >last.part
    { cat net.part; printf '%s\n' '[convolutional]' filters=6 size=5 stride=2 pad=1 activation=tanh \
        '[convolutional]' filters=8 size=3 stride=2 pad=1 activation=tanh; cat last.part; } >conv.cfg
    sed 's/^activation=tanh/batch_normalize=1\n&/' conv.cfg >norm.cfg
    sed 's/^max_batches=.*/max_batches=1/; s/^momentum=.*/momentum=0/; s/^decay=.*/decay=0/' conv.cfg >step.cfg
    sed 's/^momentum/adam=1\n&/; s/^learning_rate=.*/learning_rate=0.001/' conv.cfg >adam.cfg
    # 1.6 million weights: seven parts of 1 MiB for pure_nccl.
    { sed 's/^max_batches=.*/max_batches=40/' net.part; printf '%s\n' '[connected]' output=1000 activation=tanh \
        '[connected]' output=800 activation=tanh; cat last.part; } >wide.cfg
}

# CUDA's MPS lets the kernels of several processes run on a GPU at the same time. Without it the processes take turns, milliseconds
# each, and a kernel of NCCL waits for that of another rank all its turn. Sets CUDA_MPS_PIPE_DIRECTORY; fails where there is none.
start_mps() {
    local program
    if ! program=$(first_of nvidia-cuda-mps-control /usr/local/nvidia/bin/nvidia-cuda-mps-control); then
        echo '# nvidia-cuda-mps-control is not installed: ranks of a GPU take turns'
        return 1
    fi
    mkdir -p mps
    export CUDA_MPS_PIPE_DIRECTORY=$work/mps CUDA_MPS_LOG_DIRECTORY=$work/mps
    if ! timeout 10 "$program" -d >mps/said 2>&1; then
        sed 's/^/# nvidia-cuda-mps-control: /' mps/said
        unset CUDA_MPS_PIPE_DIRECTORY
        return 1
    fi
    mps_control=$program
}

# The daemon that start_mps has started ends with this script. Processes that come later find the GPU without it.
end_mps() {
    [[ -n $mps_control ]] || return 0
    echo quit | timeout 10 "$mps_control" >/dev/null || true
    unset CUDA_MPS_PIPE_DIRECTORY
    mps_control=
}

# More ranks than GPUs: NCCL has to be talked into it. Sets wrapper and CMN_DEBUG_SHARE_GPUS, or why_not. A GPU for each rank needs
# no way to share.
find_a_way_to_share() {
    local way
    for way in mps none hostid; do
        wrapper=() why_not='' CMN_DEBUG_SHARE_GPUS=''
        if [[ $way == mps ]] && { ((gpus != 1)) || [[ -n ${CUDA_MPS_PIPE_DIRECTORY:-} ]] || ! start_mps; }; then continue; fi
        if [[ $way != none ]]; then
            # shellcheck disable=SC2016  # each rank's own shell expands it
            CMN_DEBUG_SHARE_GPUS=1 wrapper=(sh -c 'NCCL_HOSTID=host-$OMPI_COMM_WORLD_RANK exec "$@"' sh)
        fi
        if train 2 step -cmn_communicator pure_nccl; then
            [[ $way == none ]] || echo "# the ranks share the GPU, each with an NCCL_HOSTID of its own${mps_control:+, by MPS}"
            return
        fi
        if [[ -n $mps_control ]]; then
            tail -n 15 log mps/*log 2>/dev/null | sed 's/^/# by MPS: /'
            end_mps
        fi
    done
    wrapper=()
    why_not=$(grep -m 1 '^cmn\[' log || echo 'NCCL refuses several ranks on a GPU')
}

# NCCL, or what works without it.
choose_by() {
    by=(-cmn_communicator "$([[ -n $why_not ]] && echo hierarchical || echo pure_nccl)")
}

# What an earlier run with this folder has found out, or why nothing is known.
know_the_way() {
    export CMN_DEBUG_SHARE_GPUS=
    wrapper=() why_not=
    if [[ -f way ]]; then
        # shellcheck disable=SC1091  # two_ranks has written it
        . ./way
        [[ -z ${CUDA_MPS_PIPE_DIRECTORY:-} ]] || start_mps || true
    elif ((gpus < 2)); then
        CMN_DEBUG_SHARE_GPUS=1 why_not='how NCCL shares a GPU is not known: two_ranks comes first'
    fi
    choose_by
}

# ---- the steps of tests/gpu/steps ----

check() {
    local result='it does not'
    ! on 1 "$DARKNET" cmn check || grep -q ' 0 GPUs for this rank' log || result=ok
    report 'cmn check sees a GPU' "$result" log
    sed 's/^/# /' log
}

against_the_cpu() {
    local cfg
    for cfg in step:1e-4 conv:1e-3 norm:1e-2 adam:1e-2; do
        side_by_side "${cfg%:*}" "${cfg#*:}"
    done
}

two_ranks() {
    local result
    find_a_way_to_share
    choose_by
    if ((gpus > 1)); then
        result=${why_not:-${CMN_DEBUG_SHARE_GPUS:+they train only where they share one}}
        report 'pure_nccl, 2 ranks with a GPU each' "${result:-ok}" log
    else
        report 'pure_nccl, 2 ranks on one GPU' "${why_not:+skip }${why_not:-ok}"
    fi
    declare -p wrapper CMN_DEBUG_SHARE_GPUS why_not ${CUDA_MPS_PIPE_DIRECTORY+CUDA_MPS_PIPE_DIRECTORY} |
        sed 's/^declare -[-ax]* //' >way
}

# Sums in each communicator, each type, in the background or not, of gradients that a kernel that spins makes late.
exchanges() {
    tests_pass transports/nccl "${1:-2}"
    tests_pass communicators/exchange "${1:-2}"
}

exchanges_of_four() { exchanges 4; }

broken_exchanges() {
    local program what='the tests see a stream that does not wait' result='they do not'
    has_program communicators/exchange "$what" || return 0
    CMOCKA_MESSAGE_OUTPUT=TAP GPU_TEST_BREAK=wait on 2 "$program" || ! grep -q '^not ok [0-9]* - same_bits' log || result=ok
    report "$what" "$result" log
}

# Overlap changes no sum. Darknet's own kernels may round otherwise from run to run, so equal bits are said, not demanded.
overlap() {
    local name by
    for name in pure_nccl flat 'pure_nccl -cmn_compress bf16'; do
        [[ $name == flat ]] || needs_nccl "$name, 2 ranks, overlap" || continue
        read -ra by <<<"-cmn_communicator $name"
        keeps off-wide "$name, 2 ranks, without overlap" 2 wide "${by[@]}" -cmn_overlap off || continue
        CMN_DEBUG_BUCKET_MB=1 trains_as off-wide.weights 1e-5 "$name, 2 ranks, overlap on as off" 2 wide "${by[@]}" \
            -cmn_overlap on -cmn_timeline trace.json
        echo "# the same bits: $(cmp -s off-wide.weights out/wide.weights && echo yes || echo no); its sums are in the trace:" \
            "$(grep -qs '"exchange 0"' trace.json && echo yes || echo no)"
        trains_as off-wide.weights 1e-5 "$name, 2 ranks, overlap by measuring" 2 wide "${by[@]}"
        grep '^cmn: overlap' log | sed 's/^/# /' || true
    done
}

several_ranks() {
    local file limit ranks cfg keys
    while read -r -u 3 file limit ranks cfg keys; do
        [[ ! $keys =~ (pure_nccl|single_node) ]] || needs_nccl "$cfg.cfg, $ranks ranks, $keys" || continue
        # shellcheck disable=SC2086  # keys and their values
        CMN_DEBUG_INTRA=$([[ $keys != hierarchical* ]] || echo mpi) trains_as "one-$file.weights" "$limit" \
            "$cfg.cfg, $ranks ranks train as one, $keys" "$ranks" "$cfg" -cmn_communicator $keys
    done 3< <(for ranks in 2 4; do
        printf "conv 1e-4 $ranks conv %s\n" pure_nccl single_node hierarchical two_dimensional flat
        echo "adam 1e-3 $ranks adam hierarchical"
        echo "norm 1e-2 $ranks norm hierarchical -cmn_sync_bn 1"
    done; printf 'conv 2e-2 2 conv pure_nccl -cmn_compress %s\n' fp16 bf16)
}

# Each line: name, limit, and what lies between [net] and the last two layers. Some also in bf16: near to 32 bits, and not the same.
# A GPU draws other numbers for dropout than the CPU, but the same ones each time. yolo has images of another size each ten steps.
layers() {
    local name limit sections command=(classifier train small.data)
    while read -r -u 3 name limit sections; do
        { sed 's/^max_batches=.*/max_batches=5/' net.part; tr ' ' '\n' <<<"$sections"; cat last.part; } >"$name.cfg"
        if [[ $limit != - ]]; then
            side_by_side "$name" "$limit"
        else
            keeps "first-$name" "$name.cfg on a GPU" 1 "$name" || continue
            trains_as "first-$name.weights" 1e-6 "$name.cfg gives the same weights twice on a GPU" 1 "$name"
        fi
    done 3<<'END'
pools        1e-3 [convolutional] filters=8 size=3 pad=1 activation=leaky [maxpool] size=2 stride=2 [convolutional] filters=8 size=3 pad=1 activation=relu [maxpool] size=3 stride=2
resnet-like  1e-2 [convolutional] batch_normalize=1 filters=8 size=3 stride=2 pad=1 activation=leaky [convolutional] batch_normalize=1 filters=4 size=1 activation=leaky [convolutional] batch_normalize=1 filters=8 size=3 pad=1 activation=linear [shortcut] from=-3 activation=leaky [avgpool]
deconv       1e-3 [convolutional] filters=6 size=3 stride=2 pad=1 activation=tanh [deconvolutional] filters=4 size=4 stride=2 padding=1 activation=tanh
routes       1e-3 [convolutional] filters=4 size=3 stride=2 pad=1 activation=tanh [convolutional] filters=4 size=3 stride=2 pad=1 activation=tanh [upsample] stride=2 [route] layers=-1,0
groups       1e-3 [convolutional] filters=8 size=3 stride=2 pad=1 activation=tanh [convolutional] groups=4 filters=8 size=3 pad=1 activation=tanh
local        1e-3 [convolutional] filters=4 size=5 stride=4 pad=1 activation=tanh [local] filters=4 size=3 stride=1 pad=1 activation=tanh
batchnorm    1e-2 [convolutional] filters=6 size=5 stride=2 pad=1 activation=tanh [batchnorm]
dropout      -    [connected] output=64 activation=tanh [dropout] probability=.5
END
    tests_pass engine/gpu_convolution 1
    for name in resnet-like groups; do
        trains "$name.cfg, convolutions in bf16" 1 "$name" -cmn_mixed bf16 || continue
        near "one-$name.weights" 2e-2 "$name.cfg, convolutions in bf16 as in 32 bits" "$name" 1e-6
    done
    command=(detector train boxes-10.data)
    [[ -f data/detection/train.list ]] || { report 'yolo' 'skip data/detection is missing: make detection'; return 0; }
    sed -e 's/^random=.*/random=1/; s/^max_batches=.*/max_batches=11/; s/^batch=.*/batch=2/; s/^burn_in=.*//' \
        -e 's/^learning_rate=.*/learning_rate=1e-5/' "$root/cfg/digits_yolo.cfg" >yolo.cfg
    side_by_side yolo 1e-2
}

# AlexeyAB's tree: yolov4-tiny with small images, its products in 32 bits and then in 16.
alexeyab() {
    local name from='' program=${DARKNET_ALEXEYAB:-} command=(detector train boxes-10.data) what="AlexeyAB's tree,"
    for name in "$root"/build/gpu*-alexeyab*/bin/darknet; do
        [[ -n $program || ! -x $name ]] || program=$name
    done
    for name in "$root" "${ALEXEYAB_TREE:-$root/build/alexeyab/darknet}"; do
        name=$name/cfg/yolov4-tiny.cfg
        [[ -n $from || ! -f $name ]] || from=$name
    done
    if [[ -z $program || -z $from || ! -f data/detection/train.list ]]; then
        report "yolov4-tiny of AlexeyAB's tree" \
            'skip there is no GPU build of it, no yolov4-tiny.cfg, or no data/detection (make detection)'
        return
    fi
    local DARKNET=$program
    sed -E 's/^batch *=.*/batch=16/; s/^subdivisions *=.*/subdivisions=4/; s/^(width|height) *=.*/\1=96/
        s/^burn_in *=.*/burn_in=0/; s/^max_batches *=.*/max_batches=6/; s/^policy *=.*/policy=constant/
        s/^learning_rate *=.*/learning_rate=1e-4/; s/^classes *=.*/classes=10/; s/^filters *= *255$/filters=45/' "$from" >tiny.cfg
    # Its kernels take half precision where the losses are scaled.
    sed 's/^burn_in/loss_scale=128\n&/' tiny.cfg >half.cfg
    for name in tiny:1e-3 half:2e-2; do
        from=${name%:*}
        keeps "one-$from" "$what $from.cfg on 1 rank" 1 "$from" -dont_show || continue
        trains_as "one-$from.weights" "${name#*:}" "$what $from.cfg on 2 ranks trains as one" 2 "$from" -dont_show "${by[@]}"
    done
    trains_as one-tiny.weights 2e-2 "$what tiny.cfg on a GPU, half precision as 32 bits" 1 half -dont_show
}

# What happens around the steps.
training() {
    local what='a training resumes from a checkpoint'
    trains_as one-norm.weights 1e-2 'batch normalisation of all images, 2 ranks train as one' 2 norm "${by[@]}" -cmn_sync_bn 1
    sed 's/^subdivisions=.*/subdivisions=4/' conv.cfg >parts.cfg
    trains_as one-conv.weights 1e-4 '4 subdivisions train as one' 1 parts
    trains_as one-conv.weights 1e-4 '2 ranks with 4 subdivisions train as one' 2 parts "${by[@]}"
    if keeps whole 'a training writes checkpoints' 2 norm "${by[@]}" -cmn_checkpoint 10; then
        rm -f out/norm-20.checkpoint
        if go_on 2 norm "${by[@]}" -cmn_checkpoint 10 && grep -q 'resumed from out/norm-10.checkpoint' log; then
            near whole.weights 1e-4 "$what, the same bits: $(cmp -s whole.weights out/norm.weights && echo yes || echo no)" norm
        else
            report "$what" 'it does not' log
        fi
    fi
    what='what is no number stops a training, which names it'
    sed 's/^learning_rate=.*/learning_rate=1e30/' conv.cfg >nan.cfg
    if train 2 nan "${by[@]}"; then
        report "$what" 'it trains' log
    else
        report "$what" "$(grep -q 'iteration [0-9]*: .*\(inf\|nan\)' log && echo ok || echo 'it stops without that')" log
    fi
}

# What writes outside of its memory, or two threads at a time, in Darknet's kernels and in those of cmn.
sanitizer() {
    local tool program
    end_mps # it takes no debugger
    program=$(first_of compute-sanitizer /usr/local/cuda*/bin/compute-sanitizer /opt/nvidia/*/*/compute-sanitizer) || true
    sed 's/^max_batches=.*/max_batches=2/' norm.cfg >few.cfg
    for tool in memcheck racecheck; do
        # cuDNN and NCCL try calls that may fail, and go on.
        local wrapper=("$program" --tool "$tool" --report-api-errors no --error-exitcode 99)
        if [[ -z $program ]]; then
            report "compute-sanitizer, $tool" 'skip compute-sanitizer is not installed'
        elif train 1 few -cmn_communicator pure_nccl -cmn_compress bf16; then
            report "compute-sanitizer, $tool" ok
        else
            report "compute-sanitizer, $tool" \
                "$(grep -m 1 -E '^=+ (Invalid|Error|ERROR|Internal|Program hit)' log || tail -n 1 log)" log
        fi
    done
}

# The number of a process of ours that is rank $1 of the running job.
pid_of_rank() {
    local dir
    for dir in /proc/[0-9]*; do
        if [[ $(readlink "$dir/exe" 2>/dev/null) == "$(realpath "$DARKNET")" ]] &&
            [[ $(grep -czE "^(OMPI_COMM_WORLD_RANK=$1|GPU_TEST_JOB=$$)$" "$dir/environ" 2>/dev/null) == 2 ]]; then
            basename "$dir"
            return
        fi
    done
}

# A rank that dies, and one that is stalled, in the middle of training.
faults() {
    local signal job pid begin status i
    end_mps # a process that is killed could take its neighbours along
    sed 's/^max_batches=.*/max_batches=1000000/' conv.cfg >endless.cfg
    for signal in KILL STOP; do
        [[ $signal == KILL ]] || needs_nccl 'a stalled rank is noticed' || continue
        GPU_TEST_JOB=$$ GPU_TEST_LIMIT=120 on 2 "$DARKNET" classifier train small.data endless.cfg -cmn -cmn_validate 0 \
            -cmn_timeout 5 "${by[@]}" &
        job=$!
        for ((i = 0; i < 200; i++)); do
            ! grep -q '^[0-9]*, ' log || break
            sleep 0.1
        done
        sleep 1
        pid=$(pid_of_rank 1)
        begin=$SECONDS status=0
        [[ -z $pid ]] || kill -"$signal" "$pid"
        wait "$job" || status=$?
        [[ -z $pid ]] || kill -KILL "$pid" 2>/dev/null || true
        if [[ -z $pid ]]; then
            report "SIG$signal of rank 1" 'it was not found' log
        elif ((status == 0 || status == 124 || SECONDS - begin > 40)); then
            report "SIG$signal of rank 1 ends the others" "status $status after $((SECONDS - begin)) s" log
        elif [[ $signal == STOP ]] && ! grep -q cmn_timeout log; then
            report "SIG$signal of rank 1 ends the others" 'without saying that it waited' log
        else
            report "SIG$signal of rank 1 ends the others after $((SECONDS - begin)) s" ok
        fi
    done
}

# shape NET BATCH SIDE: NET.cfg of Darknet with images of that size, 30 steps.
shape() {
    local from=$root/cfg/$1.cfg
    [[ -f $from ]] || from=$root/build/darknet/cfg/$1.cfg
    [[ -f $from ]] || { report "$1" "skip there is no $1.cfg"; return 1; }
    sed -E -e "s/^batch *=.*/batch=$2/; s/^subdivisions *=.*/subdivisions=1/; s/^(width|height|min_crop|max_crop) *=.*/\1=$3/" \
        -e 's/^random *=.*/random=0/; s/^max_batches *=.*/max_batches=30/; s/^burn_in *=.*//' \
        -e "s/^learning_rate *=.*/learning_rate=1e-5/; s/^policy *=.*/policy=constant/; s/^\[net\]/&\nthreads=$(nproc)/" \
        "$from" >"$1.cfg"
}

# images/s of whole networks on one GPU: 10 steps to warm up, 20 that count; with convolutions in bf16, with products rounded to
# TF32, and without either. Then how long sums take.
speed() {
    local row net batch side precision times keys command
    for row in resnet50:64:224 yolov3:16:416 mnist_conv:100:28; do
        IFS=: read -r net batch side <<<"$row"
        case $net in
            yolo*) command=(detector train boxes-80.data) ;;
            mnist*) command=(classifier train small.data) ;;
            *) command=(classifier train labels-1000.data) ;;
        esac
        shape "$net" "$batch" "$side" || continue
        for precision in bf16 TF32 '32 bits'; do
            [[ $net != mnist* || $precision == TF32 ]] || continue
            if [[ $precision == TF32 ]]; then unset NVIDIA_TF32_OVERRIDE; else export NVIDIA_TF32_OVERRIDE=0; fi
            keys=(-cmn_report_every 10 -cmn_json speed.json -cmn_verify 0)
            [[ $precision != bf16 ]] || keys+=(-cmn_mixed bf16)
            trains "$net, $precision" 1 "$net" "${keys[@]}" || continue
            mapfile -t times < <(sed -n 's/.*"elapsed_time": *\([0-9.]*\).*/\1/p' speed.json)
            report "$net, batch $batch, $side x $side, $precision: $(awk -v a="${times[0]}" -v b="${times[2]}" -v n="$batch" \
                'BEGIN { printf "%.1f images/s", 20 * n / (b - a) }'), loading $(sed -n 's|.*"share/load": *\([0-9.]*\).*|\1|p' \
                speed.json | tail -n 1) of the time" ok
        done
    done
    export NVIDIA_TF32_OVERRIDE=0
    needs_nccl 'cmn bench' || return 0
    if on 2 "$DARKNET" cmn bench -sizes 1M,16M,64M -iters 5; then
        sed 's/^/# /' log
        report 'cmn bench' ok
    else
        report 'cmn bench' "$(grep -m 1 '^cmn\[' log || tail -n 1 log)" log
    fi
}

mnist() {
    local accuracy ranks by=() wrapper=() GPU_TEST_LIMIT=400
    sed 's|^backup.*|backup=out|' "$root/cfg/mnist.data" >mnist.data
    cp "$root/cfg/mnist_conv.cfg" .
    for ranks in 1 2; do
        rm -f out/*
        ((ranks == 1)) || by=(-cmn_communicator hierarchical) CMN_DEBUG_SHARE_GPUS=1
        on "$ranks" "$DARKNET" classifier train mnist.data mnist_conv.cfg -cmn -cmn_seed 7 \
            ${GPU_TEST_EPOCHS:+-cmn_epochs "$GPU_TEST_EPOCHS"} "${by[@]}" || true
        accuracy=$(sed -n 's/.*"validation\/main\/accuracy": *\([0-9.]*\).*/\1/p' out/mnist_conv.json 2>/dev/null | tail -n 1)
        report "MNIST conv net on $ranks ranks (validation accuracy $accuracy)" "$(awk -v a="$accuracy" -v b="$GPU_TEST_ACCURACY" \
            'BEGIN { print a != "" && a >= b ? "ok" : "wanted " b " as on the CPU" }')" log
    done
}

# ---- all in one process, or each step in its own ----

test_all() {
    local step steps
    : "${GPU_TEST_LIMIT:=120}" "${GPU_TEST_REQUIRED:=}" "${GPU_TEST_ACCURACY:=0.98}"
    work=${GPU_TEST_TMP:-$(mktemp -d)} command=(classifier train small.data)
    mkdir -p "$work"
    trap 'end_mps; [[ -n ${GPU_TEST_TMP:-} ]] || rm -rf "$work"' EXIT
    steps=${GPU_TEST_ONLY:-$(sed -nE 's/^([a-z_]+) +[0-9]+ +#.*/\1/p' tests/gpu/steps)}
    find_program
    prepare
    know_the_way
    echo "# $DARKNET"
    nvidia-smi -L 2>/dev/null | sed 's/^/# /' || true
    for step in $steps; do
        "$step"
    done
    ((count)) || { report 'tests on a GPU' 'none ran'; }
    echo "1..$count"
    ((failed == 0))
}

# The one line that says how a step ended, from what it printed.
why() {
    local line
    line=$(grep -m 1 -E '^not ok' <<<"$1" || grep -m 1 -E '^cmn\[|not found|cannot|No such|[Ff]ailed|[Ee]rror' <<<"$1" || tail -n 1 <<<"$1")
    sed -E "s|$root/||g; s/^not ok [0-9]* - (training on a GPU: )?//; s/^[[:space:]]+//; s/^(.{160}).+/\1…/" <<<"${line:-nothing was printed}"
}

# Ends what a step has left: a rank outlives a shell that was killed.
end_the_rest() {
    local pid
    { grep -slzx "GPU_PLAN_STEP=$1" /proc/[0-9]*/environ || true; } | while IFS=/ read -r _ _ pid _; do
        kill -KILL "$pid" 2>/dev/null || true
    done
}

# note NAME PLANNED TOOK RESULT
rows=() oks=0
note() {
    rows+=("$(printf '%-17s %7s %6s  %s' "$@")")
    [[ $4 != ok* ]] || oks=$((oks + 1))
    printf '==== %s: %s\n' "$1" "$4" | tee -a "$out/log"
}

# run_step NAME SECONDS [COMMAND...]: a function of tests/gpu/run.sh where there is no command.
run_step() {
    local name=$1 planned=$2 left=$((GPU_PLAN_SECONDS - SECONDS)) begin=$SECONDS status=0 from limit printed passed result
    shift 2
    if ((left < 5)); then
        note "$name" "$planned" - "not run: the $GPU_PLAN_SECONDS s are over"
        return
    fi
    limit=$((planned <= left ? planned : left))
    (($#)) || set -- env GPU_TEST_ONLY="$name" bash tests/gpu/run.sh
    printf '\n==== %s: %s (%d s at most)\n' "$name" "$*" "$limit" >>"$out/log"
    from=$(stat -c %s "$out/log")
    GPU_PLAN_STEP=$$-$name timeout --kill-after=5 "$limit" "$@" </dev/null >>"$out/log" 2>&1 || status=$?
    end_the_rest "$$-$name"
    printed=$(tail -c +$((from + 1)) "$out/log" | tr -d '\0')
    # What the training or test said that was ended.
    [[ $status != 1[23][47] || ! -f $GPU_TEST_TMP/log ]] || tail -n 40 "$GPU_TEST_TMP/log" | sed 's/^/# /' >>"$out/log"
    passed=$(awk '/^ok [0-9].*# SKIP/ { ++skipped; next } /^ok [0-9]/ { ++ok } /^not ok/ { ++bad }
        END { if (ok + skipped + bad > 1) printf ", %d passed%s%s", ok, skipped ? ", " skipped " skipped" : "",
            bad ? ", " bad " not, first" : "" }' <<<"$printed")
    case $status in
        0) result=ok$passed ;;
        124 | 137) result="NO END$passed; last: $(tail -n 1 <<<"$printed")" ;;
        *) result="FAILED$passed: $(why "$printed")" ;;
    esac
    note "$name" "$planned" $((SECONDS - begin)) "$result"
}

test_each() {
    local name seconds words
    export GPU_TEST_TMP=${GPU_TEST_TMP:-${TMPDIR:-/tmp}/gpu-test-$UID} GPU_TEST_REQUIRED=1 GPU_TEST_LIMIT=${GPU_TEST_LIMIT:-75}
    export NCCL_DEBUG=${NCCL_DEBUG:-WARN}
    : "${GPU_PLAN_SECONDS:=570}"
    date '+==== %F %T' >>"$out/log"
    while read -r -u 3 name seconds words; do
        [[ $# -eq 0 || " $* " == *" $name "* ]] || continue
        read -ra words <<<"$words"
        run_step "$name" "$seconds" "${words[@]}"
    done 3< <(sed -E 's/ *#.*//; /^$/d' "${GPU_PLAN:-$root/tests/gpu/steps}")
    cp "$GPU_TEST_TMP/trace.json" "$out/" 2>/dev/null || true
    {
        printf '\n%-17s %7s %6s  %s\n' step planned took result
        printf '%s\n' "${rows[@]}"
        printf '%d s; %d steps, %d of them ok\n' "$SECONDS" "${#rows[@]}" "$oks"
    } | tee -a "$out/log"
    ((oks == ${#rows[@]}))
}

if [[ -f $here/files.tar.gz ]]; then
    use_pack
else
    root=$(cd "$here/../.." && pwd)
fi
cd "$root"
: "${MPIEXEC:=mpiexec --oversubscribe --bind-to none$( ((UID)) || echo ' --allow-run-as-root')}"
read -ra mpiexec <<<"$MPIEXEC"
# cuDNN and cuBLAS may round products to 10 bits (TF32) on newer GPUs; here they are held against the CPU.
export OMPI_MCA_odls_base_sigkill_timeout=1 LC_ALL=C NVIDIA_TF32_OVERRIDE=0
# All ranks are here. NCCL takes them for other machines where each has an NCCL_HOSTID of its own.
export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-lo}
if [[ -n $out ]]; then
    test_each "${@:2}"
else
    test_all
fi
