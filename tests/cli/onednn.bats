#!/usr/bin/env bats
# shellcheck disable=SC2030,SC2031  # tests are functions that shellcheck takes for subshells
# Convolutions by oneDNN, which computes a training's where the program was built with it, unless CMN_DEBUG_ONEDNN=off.

load helpers

setup() {
    enter_folder
    small_data 400 10
    if "$DARKNET" --version | grep '^oneDNN '; then has=1; else has=0; fi
}

# All that convolutions have: sizes 3 and 1, stride, groups, with and without batch normalisation; dilation in AlexeyAB's tree. One process has four
# micro-batches a step, whose weights are reordered once; of three ranks only one has two of them.
net_cfg() {
    local more=()
    pjreddies || more=('[convolutional]' dilation=2 filters=16 size=3 stride=1 pad=1 activation=mish
        '[convolutional]' filters=16 size=3 stride_x=2 stride_y=1 pad=1 activation=swish '[route]' layers=-1 groups=2 group_id=1)
    net_section batch=24 subdivisions=4 cmn_batch=global learning_rate=.02
    printf '%s\n' '[convolutional]' batch_normalize=1 filters=16 size=3 stride=1 pad=1 activation=leaky '[maxpool]' size=2 stride=2 \
        '[convolutional]' filters=16 size=1 stride=1 activation=leaky \
        '[convolutional]' groups=2 filters=16 size=3 stride=2 pad=1 activation=relu \
        '[convolutional]' batch_normalize=1 filters=32 size=3 stride=1 pad=1 activation=leaky \
        "${more[@]}" '[convolutional]' filters=10 size=1 stride=1 activation=linear '[avgpool]' '[softmax]'
}

@test "20 iterations: 1 and 3 ranks end within 1e-6 of each other, and within 1e-4 of OpenBLAS" {
    net_cfg >net.cfg
    CMN_DEBUG_ONEDNN=off trained openblas 1 net.cfg
    trained 1 1 net.cfg
    trained 3 3 net.cfg
    assert_close 1.weights 3.weights 1e-6
    assert_close openblas.weights 1.weights 1e-4
    if ((has)); then
        assert_far openblas.weights 1.weights 1e-12 # oneDNN has computed
    else
        cmp openblas.weights 1.weights
    fi
}

# Evaluations write what one process without -cmn writes.
@test "oneDNN computes in trainings alone" {
    net_cfg >net.cfg
    sed -i s/max_batches=20/max_batches=2/ net.cfg
    ONEDNN_VERBOSE=1 train_on 1 net.cfg
    ((! has)) || grep -c '^onednn_verbose.*convolution' train.log
    "$DARKNET" classifier valid small.data net.cfg "out/net$FINAL.weights" >plain.out 2>plain.err
    ONEDNN_VERBOSE=1 darknet_on 2 classifier valid small.data net.cfg "out/net$FINAL.weights" -cmn >many.out 2>many.err
    run -1 grep -c onednn_verbose many.out
    [[ $(grep -o 'top 1: [0-9.]*' plain.out | tail -n 1) == "$(grep -o 'top 1: [0-9.]*' many.out | tail -n 1)" ]]
}

# bf16_or_skip: skips where oneDNN has no bf16.
bf16_or_skip() {
    ((has)) || skip 'built without oneDNN'
    grep -qE 'avx512_bf16|amx_bf16' /proc/cpuinfo || skip 'the processor has no bf16'
}

# bats test_tags=alexeyab
@test "cmn_mixed=bf16: 1 and 3 ranks end near each other and near 32 bits; with cmn_exact=on equal, and resumed to the bit" {
    bf16_or_skip
    net_cfg >net.cfg
    trained floats 1 net.cfg
    trained 1 1 net.cfg -cmn_mixed bf16
    trained 3 3 net.cfg -cmn_mixed bf16
    assert_close 1.weights 3.weights 2e-4 # other micro-batches are rounded as a whole
    assert_close floats.weights 1.weights 2e-2
    assert_far floats.weights 1.weights 1e-5
    trained exact-1 1 net.cfg -cmn_mixed bf16 -cmn_exact on
    trained exact-3 3 net.cfg -cmn_mixed bf16 -cmn_exact on -cmn_checkpoint 10
    cmp exact-1.weights exact-3.weights
    cp out/net-10.checkpoint kept
    rm out/*.checkpoint
    cp kept out/net-10.checkpoint
    train_on 1 net.cfg -cmn_mixed bf16 -cmn_exact on -cmn_checkpoint 10
    cmp exact-1.weights "out/net$FINAL.weights"
    rm "out/net$FINAL.weights" out/*.checkpoint
    cp kept out/net-10.checkpoint
    train_on 1 net.cfg -cmn_exact on -cmn_checkpoint 10
    grep 'the checkpoint was written with cmn_mixed=bf16, and this training has off' train.log
}

@test "cmn_mixed=auto trains as what it has measured to be faster, on all ranks, and in 32 bits where one has no bf16" {
    ((has)) || skip 'built without oneDNN'
    net_cfg >net.cfg
    ONEDNN_MAX_CPU_ISA=AVX2 train_on 2 net.cfg -cmn_mixed auto
    grep '^cmn: cmn_mixed=auto: 32 bits: the processor of a rank, or its program, has no bf16' train.log
    bf16_or_skip
    train_on 2 net.cfg -cmn_mixed auto
    chosen=$(sed -nE 's/^cmn: cmn_mixed=auto: (bf16|32 bits): a micro-batch.s products take [0-9.]+ ms in bf16, and [0-9.]+ ms in 32 bits$/\1/p' train.log)
    [[ -n $chosen ]]
    mv "out/net$FINAL.weights" auto.weights
    train_on 2 net.cfg -cmn_mixed "$([[ $chosen == bf16 ]] && echo bf16 || echo off)"
    cmp auto.weights "out/net$FINAL.weights"
}

@test "cmn_mixed=bf16: connected layers, too" {
    bf16_or_skip
    mlp_cfg batch=24 subdivisions=4 cmn_batch=global >mlp.cfg
    trained floats 1 mlp.cfg
    for n in 1 2; do
        trained $n $n mlp.cfg -cmn_mixed bf16 -cmn_exact on
    done
    cmp 1.weights 2.weights
    assert_close floats.weights 1.weights 2e-2
    assert_far floats.weights 1.weights 1e-5
}

@test "cmn_mixed=bf16 is refused where the processor lacks it, and without such layers" {
    ((has)) || skip 'built without oneDNN'
    net_cfg >net.cfg
    ONEDNN_MAX_CPU_ISA=AVX2 fails_clearly_on 2 'cmn_mixed=bf16: this processor multiplies no numbers of bf16' \
        classifier train small.data net.cfg -cmn -cmn_mixed bf16
    { net_section batch=4; printf '%s\n' '[avgpool]' '[softmax]'; } >pool.cfg
    bf16_or_skip
    fails_clearly_on 2 'cmn_mixed=bf16: the network has no convolution and no connected layer: remove the key' \
        classifier train small.data pool.cfg -cmn -cmn_mixed bf16
}
