#!/usr/bin/env bats
# shellcheck disable=SC2030,SC2031  # tests are functions that shellcheck takes for subshells
# What Darknet does by cuDNN on a GPU, over the stand-in for it (tests/gpu/fake/cudnn.c), which is strict about shapes, workspace and
# algorithms: networks against the build for the CPU, and with it against the program that has no cuDNN.

load helpers

setup() {
    enter_folder
    CPU=$DARKNET
    DARKNET=$BUILD/fake/bin/darknet
    BARE=$BUILD/fake/bin/darknet-without-cudnn
    export FAKE_GPUS=3 FAKE_VARIANCE=darknet
    small_data 120 12
}

# The nets: a name, and what lies between [net] and the last two layers. Tanh and strides: where sums rounded otherwise flip
# no maximum.
nets() {
    cat <<'END'
conv    [convolutional] filters=6 size=5 stride=2 pad=1 activation=tanh [convolutional] filters=8 size=3 stride=2 pad=1 activation=tanh
mixed   [convolutional] filters=8 size=3 stride=3 pad=1 activation=tanh [convolutional] groups=4 filters=8 size=3 pad=1 activation=tanh [convolutional] filters=4 size=1 stride=1 activation=tanh [deconvolutional] filters=3 size=4 stride=2 padding=1 activation=tanh [convolutional] filters=5 size=5 stride=4 pad=1 activation=tanh [upsample] stride=2 [route] layers=-1
groups  [convolutional] filters=8 size=3 stride=3 pad=1 activation=tanh [convolutional] groups=4 filters=8 size=3 pad=1 activation=tanh
norm    [convolutional] batch_normalize=1 filters=8 size=3 stride=3 pad=1 activation=tanh [convolutional] batch_normalize=1 filters=8 size=1 activation=linear [shortcut] from=-2 activation=tanh [batchnorm]
mlp     [connected] output=20 activation=tanh
END
}

# write NAME KEY=VALUE...: NAME.cfg
write() {
    net_section batch=12 cmn_batch=global max_batches=4 "${@:2}" >"$1.cfg"
    nets | sed -n "s/^$1  *//p" | tr ' ' '\n' | grep . >layers.part
    { cat layers.part; printf '%s\n' '[connected]' output=10 activation=linear '[softmax]'; } >>"$1.cfg"
}

# trained PROGRAM RANKS NET FILE ARGUMENTS...: its weights.
trained() {
    DARKNET=$1 train_on "$2" "$3.cfg" "${@:5}"
    mv "out/$3.weights" "$4.weights"
}

@test "cuDNN: one rank learns what the CPU does, with cuDNN and without, and more ranks the same" {
    for net in norm mixed; do
        write "$net"
        trained "$CPU" 1 "$net" cpu
        trained "$BARE" 1 "$net" bare
        assert_close cpu.weights bare.weights 1e-5
        trained "$DARKNET" 1 "$net" one
        assert_close cpu.weights one.weights 1e-5
        grep -q 'on GPUs' train.log
    done
    write mixed subdivisions=6
    trained "$DARKNET" 3 mixed many -cmn_verify 1
    assert_close cpu.weights many.weights 1e-5
}

# Products of 32 bits are as they are. tests/gpu/engine/gpu_convolution.c says what bf16 makes of a convolution; a step's
# gradients differ by where its micro-batches are cut, and not by who computes them.
@test "cuDNN: cmn_mixed=bf16 computes convolutions in bf16, and several ranks learn the same" {
    export FAKE_CAPABILITY=8
    for row in 'groups 2 -cmn_overlap on' 'norm 3 -cmn_double_buffering off'; do
        read -r net ranks keys <<<"$row"
        write "$net" subdivisions=6
        trained "$DARKNET" 1 "$net" float
        write "$net" subdivisions=6 cmn_mixed=bf16
        trained "$DARKNET" 1 "$net" one
        assert_far float.weights one.weights 1e-5
        assert_close float.weights one.weights 2e-3
        # shellcheck disable=SC2086  # keys and their values
        trained "$DARKNET" "$ranks" "$net" many -cmn_verify 1 $keys
        assert_close one.weights many.weights 1e-6
    done
    # Where nothing but tensor cores works.
    write conv
    FAKE_ALGORITHMS=tensor trained "$DARKNET" 1 conv one -cmn_mixed bf16
    # Where nothing in bf16 works, which each result says once.
    FAKE_GRAPHS=none trained "$DARKNET" 1 conv one -cmn_mixed bf16
    [[ $(grep -c '^cmn: cmn_mixed=bf16: cuDNN has no way for 28 x 28 x 1 by 6 filters of 5 x 5 ([a-z ]*): 32 bits there (CUDNN_STATUS_NOT_SUPPORTED)$' train.log) -eq 2 ]]
    write norm subdivisions=2 cmn_mixed=bf16
    trained "$DARKNET" 1 norm one -cmn_sync_bn 1
    trained "$DARKNET" 2 norm two -cmn_sync_bn 1 -cmn_verify 1
    assert_close one.weights two.weights 1e-3
}

@test "cuDNN: cmn_mixed=bf16 keeps its bits in a resume, and beside validations in 32 bits; another value is told" {
    export FAKE_CAPABILITY=8
    write norm subdivisions=6
    trained "$DARKNET" 2 norm whole -cmn_mixed bf16 -cmn_checkpoint 2
    rm out/norm-4.checkpoint
    trained "$DARKNET" 2 norm resumed -cmn_mixed bf16 -cmn_checkpoint 2
    grep 'resumed from out/norm-2.checkpoint' train.log
    run -1 grep 'written with cmn_mixed' train.log
    cmp whole.weights resumed.weights
    rm out/norm-4.checkpoint
    trained "$DARKNET" 2 norm float -cmn_checkpoint 2
    grep 'the checkpoint was written with cmn_mixed=bf16, and this training has off' train.log
    assert_far whole.weights float.weights 1e-6
    rm -r out/*.checkpoint
    trained "$DARKNET" 2 norm with -cmn_mixed bf16 -cmn_validate 1 -cmn_report_every 2
    grep -q '"validation/main/accuracy"' out/norm.json
    cmp whole.weights with.weights
}

@test "cuDNN: cmn_mixed=bf16 ends the job where it cannot be had, or would change nothing" {
    local refused='remove the key'
    write conv
    fails_clearly_on 1 "cmn_mixed=bf16: GPUs have bf16 from compute capability 8.0 on, and this one has 6.x: $refused" \
        classifier train small.data conv.cfg -cmn -cmn_mixed bf16
    FAKE_CAPABILITY=7 fails_clearly_on 1 "and this one has 7.x: $refused" classifier train small.data conv.cfg -cmn -cmn_mixed bf16
    export FAKE_CAPABILITY=8
    fails_clearly_on 1 'cmn_mixed=bf16: this processor multiplies no numbers of bf16 .*, or the program was built without oneDNN: remove the key' \
        classifier train small.data conv.cfg -nogpu -cmn -cmn_mixed bf16
    DARKNET=$BARE fails_clearly_on 1 "cmn_mixed=bf16: cuDNN computes it on GPUs, and the program was built without CUDNN=1: $refused" \
        classifier train small.data conv.cfg -cmn -cmn_mixed bf16
    # An evaluation computes in 32 bits, here or elsewhere.
    write conv cmn_mixed=bf16
    trained "$DARKNET" 1 conv conv
    FAKE_CAPABILITY=6 darknet_on 1 classifier valid small.data conv.cfg conv.weights -cmn
    write mlp
    fails_clearly_on 1 'cmn_mixed=bf16: the network has no convolution' classifier train small.data mlp.cfg -cmn -cmn_mixed bf16
    fails_clearly_on 1 'cmn_mixed has no effect: .* trains nothing' classifier valid small.data conv.cfg conv.weights -cmn -cmn_mixed bf16
}

# Images of one size each in turn while memory is taken for them, then of the largest.
@test "cuDNN: a detector with random=1 learns on 1 and 3 ranks what it learns on the CPU, and nearly that in bf16" {
    load drivers
    make_data
    net batch=3 subdivisions=3 cmn_batch=global hue=0 saturation=1 exposure=1 max_batches=1 learning_rate=1e-4 >yolo.cfg
    { conv 3 4 && conv 4 4 && printf '%s\n' '[convolutional]' filters=14 size=1 stride=2 activation=linear && yolo jitter=.2 random=1; } >>yolo.cfg
    for way in "1 $CPU" "3 $DARKNET"; do
        rm -rf out
        DARKNET=${way#* } darknet_on "${way%% *}" detector train data.data yolo.cfg -cmn -cmn_seed 7 >train.log 2>&1
        grep -x 608 train.log
        [[ -f cpu.weights ]] || cp out/yolo_final.weights cpu.weights
        assert_close cpu.weights out/yolo_final.weights 1e-5
    done
    # The loss of three images by one thread, and by three. Another step copies nothing from or to memory that is not page-locked.
    sed s/subdivisions=3/subdivisions=1/ yolo.cfg >three.cfg
    for way in '1 1' '3 1' '3 2'; do
        rm -rf out
        sed -i "s/^max_batches=.*/max_batches=${way#* }/" three.cfg
        FAKE_WAITS=$PWD/waits OPENBLAS_NUM_THREADS=${way% *} darknet_on 1 detector train data.data three.cfg -cmn -cmn_seed 7 >train.log 2>&1
        mv out/three_final.weights "threads-$way.weights"
    done
    [[ $(cut -d ' ' -f 9 waits | uniq -c) == *' 3 '[1-9]* ]]
    cmp 'threads-1 1.weights' 'threads-3 1.weights'
    assert_close cpu.weights 'threads-1 1.weights' 1e-5
    export FAKE_CAPABILITY=8
    rm -rf out
    darknet_on 3 detector train data.data yolo.cfg -cmn -cmn_seed 7 -cmn_mixed bf16 >train.log 2>&1
    grep -x 608 train.log
    assert_far cpu.weights out/yolo_final.weights 1e-6
    assert_close cpu.weights out/yolo_final.weights 1e-3
}

@test "cuDNN: where no algorithm works, the layer is named" {
    write conv
    FAKE_ALGORITHMS=none fails_clearly_on 1 'cuDNN has no algorithm for a convolution of 28 x 28 x 1 by 6 filters of 5 x 5 \(forward\) that works in 2000000000 bytes' \
        classifier train small.data conv.cfg -cmn
}
