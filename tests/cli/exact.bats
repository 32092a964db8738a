#!/usr/bin/env bats
# shellcheck disable=SC2030,SC2031,SC2154  # mpiexec and otherwise: helpers.bash; tests are functions that shellcheck takes for subshells
# cmn_exact: any number of ranks trains the same bits. Weights are held against those of one rank by cmp, losses in the JSON
# log as texts.

load helpers
load restart
load drivers

setup() {
    enter_folder
    small_data 300 20
}

# losses FILE: the losses and accuracies of the rows, each of which has both.
losses() {
    jq -ce 'if length > 0 and all(has("main/loss") and has("main/accuracy")) then .[] else error("a row without a loss") end |
        [.epoch, .iteration, ."main/loss", ."main/accuracy"]' "$1"
}

# exactly RANKS CFG ARGUMENTS...: trains on these ranks; weights and losses come to RANKS.weights and RANKS.losses.
exactly() {
    local ranks=$1 name
    name=$(basename "$2" .cfg)
    empty_out
    train_on "$@" -cmn_exact on -cmn_verify 1 -cmn_report_every 1
    mv "out/$name$FINAL.weights" "$ranks.weights"
    losses "out/$name.json" >"$ranks.losses"
}

# as_one RANKS CFG ARGUMENTS...: the bits are those of one rank, 1.weights.
as_one() {
    exactly "$@"
    cmp 1.weights "$1.weights"
    cmp 1.losses "$1.losses"
}

# sent COMMUNICATOR: the first line says who adds up.
sent() {
    grep -E "^cmn: .*, communicator $1 \(.*\), fp32, sums in a fixed order(, overlap .*)?, batch" train.log
}

# bats test_tags=alexeyab
@test "a perceptron on 1, 3 and 5 ranks, of which one is idle: equal bits" {
    mlp_cfg batch=60 subdivisions=4 max_batches=6 cmn_batch=global >mlp.cfg
    exactly 1 mlp.cfg
    for ranks in 3 5; do
        as_one $ranks mlp.cfg -cmn_timeline t.json
        sent shm
    done
    grep -q 'cmn_exact=on: 1 of 5 ranks are idle, for a step has 4 micro-batches' train.log
    jq -ce '[.traceEvents[] | select(.cat == "forward" or .cat == "backward") | .pid] | unique == [1, 2, 3, 4]' t.json
    train_on 1 mlp.cfg
    assert_close 1.weights "out/mlp$FINAL.weights" 1e-6
}

# The gradients of two ranks, 18 MiB each, do not fit into a file of 29 MiB; those of one rank do.
@test "where the shared memory for the gradients cannot be had that is said, with the communicator that does without" {
    local outputs=6000
    pjreddies || outputs=2000 # images of three colours
    mlp_cfg batch=6 subdivisions=3 max_batches=2 cmn_batch=global | sed "s/output=64/output=$outputs/" >mlp.cfg
    exactly 1 mlp.cfg
    ulimit -f 30000
    fails_clearly_on 2 "a shared window of .* cannot be had: the limit of a file's size.*-cmn_communicator flat. does without" classifier train small.data \
        mlp.cfg -cmn -cmn_seed 7 -cmn_exact on
    as_one 2 mlp.cfg -cmn_communicator flat
}

@test "convolutions, batch normalisation, dropout and augmented images: equal bits on 1 and 7 ranks, also resumed on 2" {
    {
        net_section batch=24 subdivisions=6 max_batches=4 cmn_batch=global angle=7 hue=.1 exposure=1.5 flip=1 max_crop=34
        printf '%s\n' '[convolutional]' 'filters=6' 'size=5' 'stride=1' 'pad=1' 'batch_normalize=1' \
            'activation=leaky' '[maxpool]' 'size=2' 'stride=2' '[dropout]' 'probability=.3' '[convolutional]' 'filters=8' 'size=3' 'stride=1' \
            'pad=1' 'batch_normalize=1' 'activation=leaky' '[connected]' 'output=10' 'activation=linear' '[softmax]'
    } >conv.cfg
    exactly 1 conv.cfg
    as_one 7 conv.cfg -cmn_checkpoint 2
    rm out/conv-4.checkpoint
    train_on 2 conv.cfg -cmn_exact on -cmn_checkpoint 2
    grep 'resumed from out/conv-2.checkpoint' train.log
    cmp 1.weights "out/conv$FINAL.weights"
    sed -i 's/probability=.*/probability=0/' conv.cfg
    exactly 1 conv.cfg
    train_on 1 conv.cfg
    assert_close 1.weights "out/conv$FINAL.weights" 1e-5
}

@test "Adam: equal bits on 1 and 3 ranks, also resumed on 2; other arithmetic, and another cmn_exact, is told" {
    export CMN_DEBUG_CHECKPOINT_KEEP=99
    mlp_cfg batch=60 subdivisions=4 max_batches=4 cmn_batch=global >mlp.cfg
    if pjreddies; then
        mlp_cfg batch=60 subdivisions=4 max_batches=4 cmn_batch=global adam=1 learning_rate=.002 >mlp.cfg
    fi
    exactly 1 mlp.cfg
    as_one 3 mlp.cfg -cmn_checkpoint 2
    rm out/mlp-4.checkpoint
    train_on 2 mlp.cfg -cmn_exact on -cmn_checkpoint 2
    grep 'resumed from out/mlp-2.checkpoint' train.log
    run -1 grep -E 'is dropped|other arithmetic' train.log
    cmp 1.weights "out/mlp$FINAL.weights"
    rm out/mlp-4.checkpoint
    OPENBLAS_CORETYPE=Prescott train_on 2 mlp.cfg -cmn_exact on -cmn_checkpoint 2
    grep 'cmn_exact=on: the checkpoint was written with other arithmetic' train.log
    fails_clearly_on 2 'mlp-4.checkpoint is of another training: its cmn_exact is on, and here off' classifier train small.data mlp.cfg -cmn \
        -cmn_checkpoint 2
    train_on 1 mlp.cfg
    assert_close 1.weights "out/mlp$FINAL.weights" 1e-4
}

# tensors FILE: name, length and checksum of each tensor of a checkpoint that is equal on all ranks.
tensors() {
    grep -ao '{"name":[^}]*}' "$1" | grep -v '"rank"'
}

# there_or_gone FILE PID
there_or_gone() {
    [[ -s $1 ]] || gone "$2"
}

@test "a detector with augmented images of sizes that random=1 draws: equal bits on 1 and 3 ranks" {
    export CMN_DEBUG_CHECKPOINT_KEEP=99
    local file ranks at=${ITERATIONS:-11}
    mkdir -p d
    while IFS= read -r file; do
        ln -s "../$file" d/
        echo "${file: -5:1} .5 .5 .6 .8" >"d/$(basename "${file%.png}").txt"
        echo "d/$(basename "$file")"
    done < <(head -n 30 train.list) >boxes.list
    printf '%s\n' classes=10 train=boxes.list valid=boxes.list names=labels.txt backup=out >boxes.data
    {
        net_section width=64 height=64 channels=3 batch=3 subdivisions=3 cmn_batch=global saturation=1.5 exposure=1.5 hue=.1 max_batches=250 \
            learning_rate=.0001
        printf '%s\n' '[convolutional]' batch_normalize=1 filters=6 size=8 stride=8 pad=1 activation=leaky '[maxpool]' size=2 stride=2 \
            '[convolutional]' filters=30 size=1 stride=1 pad=1 activation=linear \
            '[yolo]' mask=0,1 anchors=30,40,40,55 classes=10 num=2 jitter=.3 ignore_thresh=.7 truth_thresh=1 random=1
    } >net.cfg
    # Sizes are drawn until 200 iterations before the end. The training is asked to stop behind the second one; what it does until it
    # hears that is no matter.
    for ranks in 1 3; do
        empty_out
        timeout "$HANG_LIMIT" "${mpiexec[@]}" -n $ranks "$DARKNET" detector train boxes.data net.cfg -cmn -cmn_seed 7 -cmn_validate 0 \
            -cmn_exact on -cmn_checkpoint "$at" >train.log 2>&1 3>&- &
        started=$!
        wait_for 'a checkpoint' there_or_gone "out/net-$at.checkpoint" "$started"
        kill -USR1 "$(pgrep -P "$started")" || true # mpiexec hands it to the ranks, and waits for them
        wait "$started" || true
        # Weights come first in a checkpoint.
        head -c "$(stat -c %s out/net_final.weights)" "out/net-$at.checkpoint" >$ranks.weights
        [[ $(seen $ranks.weights) -eq $((3 * at)) ]]
        cmp 1.weights $ranks.weights
    done
    if pjreddies; then
        [[ $(sizes train.log | sort -u | wc -l) -ge 2 ]]
    fi
}

# bats test_tags=alexeyab
@test "cmn_balance: one rank is slow, its micro-batches move to the others, and the bits stay; also resumed" {
    export CMN_DEBUG_CHECKPOINT_KEEP=99
    {
        net_section batch=24 subdivisions=6 max_batches=21 cmn_batch=global angle=7 flip=1 max_crop=34
        printf '%s\n' '[connected]' output=16 batch_normalize=1 activation=leaky '[dropout]' probability=.2 \
            '[connected]' output=10 activation=linear '[softmax]'
    } >mlp.cfg
    if ! pjreddies; then
        fails_clearly "cmn_balance=auto does not go with AlexeyAB's Darknet: its loader cannot follow: remove cmn_balance" "$DARKNET" classifier train small.data mlp.cfg -cmn -cmn_exact on -cmn_balance auto
        return 0
    fi
    fails_clearly 'cmn_balance has no effect without cmn_exact=on' "$DARKNET" classifier train small.data mlp.cfg -cmn -cmn_balance auto
    exactly 1 mlp.cfg
    [[ -z $SAN ]] || skip 'a program that is checked takes no preloaded library'
    slowed SLOW_RANK=1 SLOW_MS=20
    as_one 3 mlp.cfg -cmn_balance auto
    grep -E 'cmn_balance=auto: from iteration [0-9]+ on the ranks compute [1-4] 1 [1-4] of 6 micro-batches' train.log
    sent shm
    as_one 2 mlp.cfg -cmn_balance auto -cmn_checkpoint 7
    grep -E 'cmn_balance=auto: from iteration [0-9]+ on the ranks compute [45] [12] of 6 micro-batches' train.log
    rm out/mlp-21.checkpoint
    slowed SLOW_RANK=0 SLOW_MS=20
    train_on 2 mlp.cfg -cmn_exact on -cmn_balance auto -cmn_checkpoint 7
    grep 'resumed from out/mlp-14.checkpoint' train.log
    cmp 1.weights "out/mlp$FINAL.weights"
    sed -i 's/^subdivisions=.*/subdivisions=2/' mlp.cfg
    empty_out
    train_on 2 mlp.cfg -cmn_exact on -cmn_balance auto
    grep 'cmn_balance=auto changes nothing: 2 ranks have 2 micro-batches' train.log
}

@test "what cmn_exact does not go with yet is refused in one line with its reason" {
    mlp_cfg batch=60 subdivisions=4 cmn_batch=global >mlp.cfg
    refused() {
        fails_clearly "cmn_exact=on.*$1" "$DARKNET" classifier train small.data mlp.cfg -cmn -cmn_seed 7 -cmn_exact on "${@:2}"
    }
    refused 'not go with cmn_scatter=shard: other ranks' -cmn_scatter shard
    fails_clearly_on 2 'cmn_overlap=on: communicator shm: all ranks are on one node' classifier train small.data mlp.cfg -cmn -cmn_seed 7 -cmn_exact on \
        -cmn_overlap on
    refused 'it has no sum in a fixed order: use flat, hierarchical or two_dimensional' -cmn_communicator naive
    sed -i 's/^cmn_batch=.*/cmn_exact=on\ncmn_batch=per_rank/' mlp.cfg
    fails_clearly 'cmn_exact=on does not go with cmn_batch=per_rank' "$DARKNET" classifier train small.data mlp.cfg -cmn -cmn_seed 7
}

@test "ranks whose arithmetic is another are refused: OpenBLAS, oneDNN, C library" {
    mlp_cfg batch=60 subdivisions=4 max_batches=3 cmn_batch=global >mlp.cfg
    differ() {
        fails_clearly "the arithmetic \(cmn_exact=on\) differs from rank 0.s: rank 0 has \"$1" \
            "${mpiexec[@]}" -n 2 "$otherwise" "$2" classifier train small.data mlp.cfg -cmn -cmn_seed 7 -cmn_exact on
    }
    rank_1_runs 'export OPENBLAS_CORETYPE=Prescott'
    differ "OpenBLAS's kernels for .*Prescott" "$DARKNET"
    if "$DARKNET" --version | grep '^oneDNN '; then
        rank_1_runs 'export ONEDNN_MAX_CPU_ISA=SSE41'
        differ 'oneDNN [0-9].*instructions of level .*instructions of level 1"' "$DARKNET"
    fi
    # Newer versions of glibc call them without Usable.
    rank_1_runs 'export GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX2_Usable,-FMA_Usable,-AVX2,-FMA'
    differ "the C library's functions give " "$DARKNET"
}

# whatever_threads RANKS CFG: the bits of one rank that has one thread, on RANKS with two each.
whatever_threads() {
    OPENBLAS_NUM_THREADS=1 exactly 1 "$2"
    run -1 grep 'with one thread' train.log
    OPENBLAS_NUM_THREADS=2 as_one "$@"
}

# The sizes: OpenBLAS 0.3.21 itself gives other bits on two threads for these products. It takes no more threads than there are cores;
# tests/unit/engine/products.c has more.
@test "1 rank with a thread, others with 2 each: equal bits; products of OpenBLAS in blocks, and convolutions of oneDNN with one thread, which is said" {
    mlp_cfg batch=200 subdivisions=2 max_batches=2 cmn_batch=global | sed 's/output=64/output=1000/' >mlp.cfg
    whatever_threads 2 mlp.cfg
    run -1 grep 'with one thread' train.log
    conv_cfg batch=60 subdivisions=3 max_batches=4 cmn_batch=global | sed 's/^filters=8/filters=32\nbatch_normalize=1/' >conv.cfg
    whatever_threads 2 conv.cfg
    if "$DARKNET" --version | grep '^oneDNN '; then
        grep "cmn_exact=on: oneDNN's convolutions are computed with one thread on each rank, and not 2: start a rank for each core" train.log
    fi
    CMN_DEBUG_ONEDNN=off whatever_threads 2 conv.cfg
    run -1 grep 'with one thread' train.log
}

# whole_as_one RANKS NET ARGUMENTS...: as_one, and so are the tensors of its last checkpoint. With 1 rank: it is the one.
whole_as_one() {
    local compare=as_one
    [[ $1 -ne 1 ]] || compare=exactly
    echo "${*:2} on $1"
    $compare "$1" "$2.cfg" -cmn_checkpoint "$iterations" "${@:3}"
    tensors "out/$2-$iterations.checkpoint" >"$1.tensors"
    [[ $(wc -l <"$1.tensors") -ge 3 ]]
    diff 1.tensors "$1.tensors"
}

# ITERATIONS=50 tests/run.sh cli/exact hosts/training: more of them.
@test "each kind of network, with clipping and an average, on 1 and 5 or 8 ranks; each communicator; both libraries: equal bits" {
    local iterations=${ITERATIONS:-2} net ranks name keys nets=('mlp 8' 'conv 5')
    local each=(batch=24 subdivisions=8 max_batches="$iterations" cmn_batch=global)
    mlp_cfg "${each[@]}" >mlp.cfg
    conv_cfg "${each[@]}" angle=7 hue=.1 flip=1 max_crop=34 |
        sed 's/^filters=8/&\nbatch_normalize=1/; s/^\[connected\]/[dropout]\nprobability=.3\n&/' >conv.cfg
    if pjreddies; then
        nets+=('adam 5')
        mlp_cfg "${each[@]}" adam=1 learning_rate=.002 >adam.cfg
    fi
    for net in "${nets[@]}"; do
        ranks=${net#* } net=${net% *}
        keys='-cmn_clip .05 -cmn_ema .9'
        [[ $net == adam ]] || keys+=' -cmn_lars .01'
        # shellcheck disable=SC2086  # keys and their values
        whole_as_one 1 "$net" $keys
        cp "out/${net}_ema.weights" 1.ema
        # shellcheck disable=SC2086
        whole_as_one "$ranks" "$net" $keys
        cmp 1.ema "out/${net}_ema.weights"
    done
    export CMN_DEBUG_ONEDNN=off
    whole_as_one 1 conv
    for name in single_node two_dimensional hierarchical flat; do
        whole_as_one 3 conv -cmn_communicator $name
        sent $name
    done
    CMN_DEBUG_BUCKET_MB=.002 whole_as_one 5 conv -cmn_communicator flat -cmn_overlap on
}
