#!/usr/bin/env bats
# shellcheck disable=SC2030,SC2031,SC2154  # mpiexec and otherwise: helpers.bash; tests are functions that shellcheck takes for subshells
# cmn_exact on GPUs, over the stand-in for CUDA and its libraries, whose order of work each run draws anew: any number of ranks
# trains the same bits. On the CPU: exact.bats.

load helpers
load restart
load drivers

setup() {
    enter_folder
    DARKNET=$BUILD/fake/bin/darknet
    BARE=$BUILD/fake/bin/darknet-without-cudnn
    export FAKE_GPUS=3
    small_data 200 20
}

# exactly RANKS CFG ARGUMENTS...: trains on these ranks; weights and losses come to RANKS.weights and RANKS.losses.
exactly() {
    local ranks=$1 name
    name=$(basename "$2" .cfg)
    rm -rf out
    mkdir out
    FAKE_SEED=$RANDOM train_on "$@" -cmn_exact on -cmn_verify 2 -cmn_report_every 1
    mv "out/$name.weights" "$ranks.weights"
    jq -c '.[] | [.epoch, .iteration, .loss, .accuracy]' "out/$name.json" >"$ranks.losses"
    [[ -s $ranks.losses ]]
}

# as_one RANKS CFG ARGUMENTS...: the bits are those of one rank, 1.weights.
as_one() {
    exactly "$@"
    cmp 1.weights "$1.weights"
    cmp 1.losses "$1.losses"
}

# Dropout, crops by the GPU's random numbers, batch normalisation, and two layers that read what [upsample] adds to.
conv_net() {
    net_section channels=3 batch=18 subdivisions=6 max_batches=4 cmn_batch=global angle=7
    printf '%s\n' '[crop]' crop_width=24 crop_height=24 flip=1 angle=0 saturation=1 exposure=1 '[convolutional]' filters=6 size=5 stride=2 \
        pad=1 batch_normalize=1 activation=leaky '[dropout]' probability=.3 '[convolutional]' filters=8 size=3 stride=2 pad=1 \
        batch_normalize=1 activation=leaky '[upsample]' stride=2 '[route]' layers=-1,-4 '[maxpool]' size=2 stride=2 '[connected]' output=10 \
        activation=linear '[softmax]'
}

@test "GPUs: a perceptron on 1, 2 and 4 ranks, of which one is idle: equal bits, close to those of another order; clipped, LARS, an average" {
    FAKE_GPUS=4
    mlp_cfg batch=60 subdivisions=3 max_batches=4 cmn_batch=global >mlp.cfg
    exactly 1 mlp.cfg
    grep -q 'on GPUs' train.log
    grep -q 'sums in a fixed order' train.log
    as_one 2 mlp.cfg
    as_one 4 mlp.cfg
    grep -q 'cmn_exact=on: 1 of 4 ranks are idle' train.log
    train_on 1 mlp.cfg
    assert_close 1.weights out/mlp.weights 1e-6
    exactly 1 mlp.cfg -cmn_clip .05 -cmn_ema .9 -cmn_lars .01
    as_one 2 mlp.cfg -cmn_clip .05 -cmn_ema .9 -cmn_lars .01
}

@test "GPUs: convolutions, batch normalisation, dropout and upsampling: equal bits on 1, 2 and 3 ranks, also resumed, by cuDNN and without it" {
    local DARKNET=$DARKNET program
    conv_net >conv.cfg
    # The fastest algorithm for a gradient of the weights is one without a fixed order.
    export FAKE_ALGORITHMS=unordered
    for program in "$DARKNET" "$BARE"; do
        DARKNET=$program
        exactly 1 conv.cfg
        as_one 2 conv.cfg -cmn_checkpoint 2
        rm out/conv-4.checkpoint
        train_on 3 conv.cfg -cmn_exact on -cmn_checkpoint 2
        grep 'resumed from out/conv-2.checkpoint' train.log
        cmp 1.weights out/conv.weights
    done
}

@test "GPUs: Adam with 3 ranks: the bits of one" {
    mlp_cfg batch=40 subdivisions=4 max_batches=4 cmn_batch=global adam=1 learning_rate=.002 >mlp.cfg
    exactly 1 mlp.cfg
    as_one 3 mlp.cfg
}

@test "GPUs: recurrent networks, of sequences of images and of a text: equal bits on 1, 2 and 3 ranks, also resumed" {
    local net
    {
        net_section batch=8 subdivisions=4 time_steps=3 max_batches=4 cmn_batch=global
        printf '%s\n' '[rnn]' output=12 activation=tanh batch_normalize=1 '[gru]' output=12 '[lstm]' output=8 \
            '[connected]' output=10 activation=linear '[softmax]'
    } >gated.cfg
    exactly 1 gated.cfg
    as_one 2 gated.cfg
    as_one 3 gated.cfg -cmn_checkpoint 2
    rm out/gated-4.checkpoint
    train_on 2 gated.cfg -cmn_exact on -cmn_checkpoint 2
    grep 'resumed from out/gated-2.checkpoint' train.log
    cmp 1.weights out/gated.weights

    make_text
    for net in rnn lstm; do
        text_cfg $net batch=24 subdivisions=4 max_batches=8 cmn_batch=global >$net.cfg
        [[ $net == rnn ]] || sed -i '/^activation=tanh/d' $net.cfg
        for ranks in 1 2 3; do
            rm -rf out
            mkdir out
            darknet_on $ranks rnn train $net.cfg -data text.data -cmn -cmn_seed 7 -cmn_exact on -cmn_verify 1 >train.log 2>&1
            mv "out/${net}_final.weights" $ranks.weights
            cmp 1.weights $ranks.weights
        done
    done
}

# With cmn_verify=1 nothing of a micro-batch's gradient stays in its place.
@test "GPUs: a gradient that is not finite is named, whichever micro-batch has it" {
    net_section batch=12 subdivisions=6 max_batches=3 cmn_batch=global >net.cfg
    printf '%s\n' '[convolutional]' filters=1 size=1 stride=1 pad=0 activation=linear \
        '[convolutional]' filters=10 size=28 stride=28 pad=0 activation=linear '[softmax]' >>net.cfg
    perl -e 'print pack("l<3q<", 0, 2, 0, 0), pack("f<*", 0, 2e-38, (0) x 10, map { 1e37 * (($_ * 7919 % 13) - 6) } 1 .. 7840)' >start.weights
    fails_clearly_on 2 'iteration 1: weight_updates of layer 0 \(convolutional\): (nan or inf|inf|-inf|nan)' \
        classifier train small.data net.cfg start.weights -clear -cmn -cmn_seed 7 -cmn_validate 0 -cmn_exact on -cmn_verify 1
}

@test "GPUs of another model, or with other versions of CUDA, cuBLAS, cuRAND and cuDNN, are refused" {
    local way says
    mlp_cfg batch=60 subdivisions=4 max_batches=3 cmn_batch=global >mlp.cfg
    for way in 'MULTIPROCESSORS=108:GPU .*, 132 multiprocessors.*, 108 multiprocessors' 'CUDA=12080:CUDA 13000, .*CUDA 12080, ' \
        'DRIVER=12090:CUDA 13000, driver for CUDA 13000.*driver for CUDA 12090' 'CUBLAS=12:cuBLAS 13.0.0.*cuBLAS 12.0.0' \
        'CURAND=1:cuRAND 10400.*cuRAND 1"' 'CUDNN=8907:cuDNN 91300.*cuDNN 8907'; do
        says=${way#*:}
        rank_1_runs "export FAKE_${way%%:*}"
        fails_clearly "the arithmetic \(cmn_exact=on\) differs from rank 0.s: rank 0 has \"$says" \
            "${mpiexec[@]}" -n 2 "$otherwise" "$DARKNET" classifier train small.data mlp.cfg -cmn -cmn_seed 7 -cmn_exact on
    done
}

@test "GPUs: what cmn_exact does not go with there is refused with its reason" {
    mlp_cfg batch=60 subdivisions=4 cmn_batch=global >mlp.cfg
    fails_clearly 'messages of its own: leave cmn_communicator away' \
        "$DARKNET" classifier train small.data mlp.cfg -cmn -cmn_seed 7 -cmn_exact on -cmn_communicator pure_nccl
}
