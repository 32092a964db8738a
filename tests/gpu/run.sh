#!/usr/bin/env bash
# What only a GPU can show, as TAP. Runs on a machine that has the build and data/mnist, and little else. Without a GPU it skips,
# saying why; where nvidia-smi lists one, what is missing is a failure. Several ranks share one GPU where there are no more.
# Environment: DARKNET (a GPU build; else the newest of build/gpu*/bin/darknet), MPIEXEC, COMPARE_WEIGHTS (compiled here when it
# is not set), GPU_TEST_TMP (a folder that stays; else a temporary one), GPU_TEST_ONLY (names of functions below).
set -euo pipefail
cd "$(dirname "$0")/../.."

root=$PWD count=0 failed=0
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true)
: "${MPIEXEC:=mpiexec --oversubscribe --bind-to none$( ((UID)) || echo ' --allow-run-as-root')}"
read -ra mpiexec <<<"$MPIEXEC"
# cuDNN and cuBLAS may round products to 10 bits (TF32) on newer GPUs; here they are held against the CPU.
export OMPI_MCA_odls_base_sigkill_timeout=1 LC_ALL=C NVIDIA_TF32_OVERRIDE=0
work=${GPU_TEST_TMP:-$(mktemp -d)}
mkdir -p "$work"
[[ -n ${GPU_TEST_TMP:-} ]] || trap 'rm -rf "$work"' EXIT

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

skip_all() {
    echo 1..1
    if ((gpus)); then
        report 'training on a GPU' "there is one, but $1"
        exit 1
    fi
    report 'training on a GPU' "skip $1"
    exit 0
}

find_program() {
    local newest=
    if [[ -z ${DARKNET:-} ]]; then
        for newest in build/gpu*/bin/darknet; do
            [[ ! -x $newest || ! $newest -nt ${DARKNET:-/} ]] || DARKNET=$root/$newest
        done
    fi
    [[ -n ${DARKNET:-} ]] || skip_all 'there is no GPU build: make GPU=1 CUDNN=1 NCCL=1'
    [[ -x $DARKNET ]] || skip_all "$DARKNET is no program"
    # The GPU is looked for before any file is read.
    local said
    said=$("$DARKNET" classifier train -i 99 no.data no.cfg 2>&1 </dev/null) || true
    [[ $said != *'error while loading'* ]] || skip_all "${said%%$'\n'*}"
    [[ $said == *'GPU 99 cannot be used'* ]] || skip_all "$DARKNET is a build for the CPU"
    said=$("$DARKNET" classifier train no.data no.cfg 2>&1 </dev/null) || true
    [[ $said != *'cannot be used'* ]] || skip_all "${said%%$'\n'*}"
    command -v "${mpiexec[0]}" >/dev/null || skip_all "${mpiexec[0]} is not installed"
    [[ -f data/mnist/train.list ]] || skip_all 'data/mnist is missing: make mnist'
    if [[ -z ${COMPARE_WEIGHTS:-} ]]; then
        COMPARE_WEIGHTS=$work/compare_weights
        "${CC:-gcc}" -std=c11 -O2 -o "$COMPARE_WEIGHTS" tests/tools/compare_weights.c -lm || skip_all 'no C compiler for compare_weights'
    fi
}

prepare() {
    cd "$work"
    ln -sfn "$root/data" data
    mkdir -p out
    head -n 2000 "$root/data/mnist/train.list" >train.list
    printf '%s\n' classes=10 train=train.list valid=data/mnist/valid.list labels=data/mnist/labels.txt backup=out top=1 >small.data
    printf '%s\n' '[net]' batch=64 subdivisions=1 height=28 width=28 channels=1 min_crop=28 max_crop=28 angle=0 hue=0 saturation=1 \
        exposure=1 aspect=1 flip=0 threads=1 momentum=0.9 decay=0.0005 learning_rate=0.02 policy=constant max_batches=20 >net.part
    printf '%s\n' '[convolutional]' filters=6 size=5 stride=2 pad=1 activation=tanh \
        '[convolutional]' filters=8 size=3 stride=2 pad=1 activation=tanh '[connected]' output=10 activation=linear '[softmax]' >layers.part
    cat net.part layers.part >conv.cfg
    sed 's/^activation=tanh/batch_normalize=1\n&/' conv.cfg >norm.cfg
    sed 's/^max_batches=.*/max_batches=1/; s/^momentum=.*/momentum=0/; s/^decay=.*/decay=0/' conv.cfg >step.cfg
    sed 's/^momentum/adam=1\n&/; s/^learning_rate=.*/learning_rate=0.001/' conv.cfg >adam.cfg
    sed 's/^max_batches=.*/max_batches=1000000/' conv.cfg >endless.cfg
    # 1.6 million weights: seven parts of 1 MiB for pure_nccl.
    { sed 's/^max_batches=.*/max_batches=40/' net.part; printf '%s\n' '[connected]' output=1000 activation=tanh '[connected]' output=800 activation=tanh \
        '[connected]' output=10 activation=linear '[softmax]'; } >wide.cfg
}

# train RANKS CFG ARGUMENTS...: into log; the weights to out/CFG.weights.
train() {
    local ranks=$1 cfg=$2
    shift 2
    rm -f out/*
    timeout --kill-after=5 120 "${mpiexec[@]}" -n "$ranks" "${wrapper[@]}" "$DARKNET" classifier train small.data "$cfg.cfg" \
        -cmn -cmn_seed 7 -cmn_validate 0 -cmn_batch global -cmn_verify 5 "$@" >log 2>&1
}

# The relative L2 of the weights just written and of FILE, or why there is none.
differs() {
    local text
    text=$("$COMPARE_WEIGHTS" "$1" "$2" 2>&1) || true
    sed -n 's/^relative-l2 //p' <<<"$text" | grep . || echo "no comparison: $text"
}

# trains_as FILE LIMIT WHAT RANKS CFG ARGUMENTS...
trains_as() {
    local file=$1 limit=$2 what=$3 d
    shift 3
    if ! train "$@"; then
        report "$what" "$(grep -m 1 '^cmn\[' log || echo 'it does not train')" log
        return
    fi
    d=$(differs "$file" "out/$2.weights")
    if awk -v d="$d" -v limit="$limit" 'BEGIN { exit !(d ~ /^[0-9]/ && d + 0 < limit + 0) }'; then
        report "$what (relative L2 $d)" ok
    else
        report "$what" "relative L2 $d, limit $limit" log
    fi
}

against_the_cpu() {
    local cfg limit
    for cfg in step:1e-4 conv:1e-3 norm:1e-2 adam:1e-2; do
        limit=${cfg#*:} cfg=${cfg%:*}
        if ! train 1 "$cfg" -nogpu -cmn_communicator flat; then
            report "$cfg.cfg on the CPU, by the GPU build" 'it does not train' log
            continue
        fi
        mv "out/$cfg.weights" "cpu-$cfg.weights"
        trains_as "cpu-$cfg.weights" "$limit" "$cfg.cfg on a GPU gives the weights of the CPU" 1 "$cfg"
        cp "out/$cfg.weights" "one-$cfg.weights" 2>/dev/null || true
    done
}

# More ranks than GPUs: NCCL has to be talked into it. Sets wrapper and sharing, or why_not.
find_a_way_to_share() {
    # shellcheck disable=SC2016  # each rank's own shell expands it
    local by_name='NCCL_HOSTID=host-$OMPI_COMM_WORLD_RANK exec "$@"'
    sharing=() wrapper=() why_not=
    if train 2 step -cmn_communicator pure_nccl; then return; fi
    sharing=(-cmn_share_gpus 1)
    wrapper=(env NCCL_MULTI_RANK_GPU_ENABLE=1)
    if train 2 step "${sharing[@]}" -cmn_communicator pure_nccl; then
        echo '# NCCL takes several ranks on a GPU with NCCL_MULTI_RANK_GPU_ENABLE=1'
        return
    fi
    wrapper=(sh -c "$by_name" sh)
    if train 2 step "${sharing[@]}" -cmn_communicator pure_nccl; then
        echo '# NCCL takes several ranks on a GPU when each has an NCCL_HOSTID of its own'
        return
    fi
    wrapper=()
    why_not=$(grep -m 1 '^cmn\[' log || echo 'NCCL refuses several ranks on a GPU')
}

several_ranks() {
    local ranks name
    for ranks in 2 4; do
        for name in pure_nccl single_node hierarchical two_dimensional non_cuda_aware; do
            if [[ -n $why_not ]]; then
                report "$name, $ranks ranks" "skip $why_not"
                continue
            fi
            trains_as one-conv.weights 1e-4 "$name, $ranks ranks train as one" "$ranks" conv "${sharing[@]}" -cmn_communicator "$name"
        done
        trains_as one-conv.weights 1e-4 "non_cuda_aware without NCCL, $ranks ranks train as one" "$ranks" conv "${sharing[@]}" \
            -cmn_communicator non_cuda_aware -cmn_intra mpi
        trains_as one-adam.weights 1e-3 "adam, $ranks ranks train as one" "$ranks" adam "${sharing[@]}" -cmn_communicator non_cuda_aware -cmn_intra mpi
        trains_as one-norm.weights 1e-2 "batch normalisation of all images, $ranks ranks train as one" "$ranks" norm "${sharing[@]}" \
            -cmn_communicator non_cuda_aware -cmn_intra mpi -cmn_sync_bn 1
    done
    for name in fp16 bf16; do
        if [[ -n $why_not ]]; then
            report "pure_nccl, 2 ranks, $name" "skip $why_not"
        else
            trains_as one-conv.weights 2e-2 "pure_nccl, 2 ranks, $name" 2 conv "${sharing[@]}" -cmn_communicator pure_nccl -cmn_allreduce_dtype $name
        fi
    done
}

# Overlap changes no sum. Darknet's own kernels may round otherwise from run to run, so equal bits are said, not demanded.
overlap() {
    local name bits traced arguments
    for name in pure_nccl 'non_cuda_aware -cmn_intra mpi' 'pure_nccl -cmn_allreduce_dtype bf16'; do
        read -ra arguments <<<"$name"
        if [[ -n $why_not && $name == pure_nccl* ]]; then
            report "$name, 2 ranks, overlap" "skip $why_not"
            continue
        fi
        if ! train 2 wide "${sharing[@]}" -cmn_communicator "${arguments[@]}" -cmn_overlap off; then
            report "$name, 2 ranks, without overlap" "$(grep -m 1 '^cmn\[' log || echo 'it does not train')" log
            continue
        fi
        mv out/wide.weights off-wide.weights
        trains_as off-wide.weights 1e-5 "$name, 2 ranks, overlap on as off" 2 wide "${sharing[@]}" -cmn_communicator "${arguments[@]}" -cmn_overlap on \
            -cmn_bucket_mb 1 -cmn_timeline out/trace.json
        bits=no traced=no
        if cmp -s off-wide.weights out/wide.weights; then bits=yes; fi
        if grep -q '"exchange 0"' out/trace.json 2>/dev/null; then traced=yes; fi
        echo "# the same bits: $bits; its sums are in the trace: $traced"
        trains_as off-wide.weights 1e-5 "$name, 2 ranks, overlap by measuring" 2 wide "${sharing[@]}" -cmn_communicator "${arguments[@]}"
        grep '^cmn: overlap' log | sed 's/^/# /' || true
    done
}

# refused PATTERN WHAT RANKS CFG ARGUMENTS...
refused() {
    local pattern=$1 what=$2
    shift 2
    if train "$@"; then
        report "$what" 'it trains' log
    elif grep -q "$pattern" log; then
        report "$what" ok
    else
        report "$what" "no \"$pattern\"" log
    fi
}

refusals() {
    refused cmn_share_gpus 'more ranks than GPUs is an error that names the key' $((gpus + 1)) conv -cmn_communicator non_cuda_aware
    refused 'non_cuda_aware' 'flat without a CUDA-aware MPI names non_cuda_aware' 1 conv -cmn_communicator flat
    refused 'pure_nccl' 'shm names pure_nccl' 1 conv -cmn_communicator shm
    refused 'GPU 99' 'a GPU that is not there is named' 1 conv -i 99
}

# accuracy CFG ARGUMENTS...: of the last validation.
last_accuracy() {
    sed -n 's/.*"validation\/main\/accuracy": *\([0-9.]*\).*/\1/p' "$1" | tail -n 1
}

mnist() {
    local accuracy ranks by=()
    sed 's|^backup.*|backup=out|' "$root/cfg/mnist.data" >mnist.data
    cp "$root/cfg/mnist_conv.cfg" .
    for ranks in 1 2; do
        rm -f out/*
        ((ranks == 1)) || by=(-cmn_share_gpus 1 -cmn_communicator non_cuda_aware -cmn_intra mpi)
        if ! timeout --kill-after=5 400 "${mpiexec[@]}" -n "$ranks" "$DARKNET" classifier train mnist.data mnist_conv.cfg -cmn -cmn_seed 7 \
            "${by[@]}" >log 2>&1; then
            report "MNIST conv net on $ranks ranks" "$(grep -m 1 '^cmn\[' log || echo 'it does not train')" log
            continue
        fi
        accuracy=$(last_accuracy out/mnist_conv.json)
        if awk -v a="$accuracy" 'BEGIN { exit !(a >= 0.98) }'; then
            report "MNIST conv net on $ranks ranks (validation accuracy $accuracy)" ok
        else
            report "MNIST conv net on $ranks ranks" "validation accuracy $accuracy, wanted 0.98 as on the CPU" log
        fi
    done
}

# The number of a process of ours that is rank $1 of the running job.
pid_of_rank() {
    local dir
    for dir in /proc/[0-9]*; do
        if [[ $(readlink "$dir/exe" 2>/dev/null) == "$(realpath "$DARKNET")" ]] && grep -qz "^OMPI_COMM_WORLD_RANK=$1$" "$dir/environ" 2>/dev/null &&
            grep -qz "^GPU_TEST_JOB=$$$" "$dir/environ" 2>/dev/null; then
            basename "$dir"
            return
        fi
    done
}

# A rank that dies, and one that is stalled, in the middle of training.
faults() {
    local signal job pid begin status
    for signal in KILL STOP; do
        if [[ -n $why_not && $signal == STOP ]]; then
            report 'a stalled rank is noticed' "skip $why_not"
            continue
        fi
        GPU_TEST_JOB=$$ timeout --kill-after=5 120 "${mpiexec[@]}" -n 2 -x GPU_TEST_JOB "${wrapper[@]}" "$DARKNET" classifier train small.data endless.cfg \
            -cmn -cmn_validate 0 "${sharing[@]}" -cmn_timeout 5 -cmn_communicator "$([[ -n $why_not ]] && echo non_cuda_aware || echo pure_nccl)" \
            -cmn_intra "$([[ -n $why_not ]] && echo mpi || echo auto)" >log 2>&1 &
        job=$!
        sleep 20
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

# A GPU for each rank needs no way to share.
two_ranks() {
    find_a_way_to_share
    [[ -z $why_not ]] || sharing=(-cmn_share_gpus 1)
    ((gpus < 2)) || [[ -z $why_not && ${#sharing[@]} -eq 0 ]] || report 'pure_nccl, 2 ranks with a GPU each' "${why_not:-they train only where they share one}" log
}

find_program
prepare
wrapper=() sharing=() why_not=
echo "# $DARKNET"
nvidia-smi -L 2>/dev/null | sed 's/^/# /' || true
for part in ${GPU_TEST_ONLY:-against_the_cpu refusals two_ranks several_ranks overlap faults}; do
    "$part"
done
wrapper=()
[[ -n ${GPU_TEST_ONLY:-} ]] || mnist
((count)) || { report 'tests on a GPU' 'none ran'; }
echo "1..$count"
((failed == 0))
