#!/usr/bin/env bats
# shellcheck disable=SC2030,SC2031,SC2154  # mpiexec: helpers.bash; tests are functions that shellcheck takes for subshells
# AlexeyAB's Darknet on GPUs, over the stand-in for CUDA and its libraries (tests/gpu/fake/), where its tree is (alexeyab.bats).
# Its kernels are compiled for the CPU; with cuDNN where nothing else is said.

load helpers
load alexeyab

setup_file() {
    alexeyab_tree
}

setup() {
    alexeyab_program
    CPU=$DARKNET
    DARKNET=$ALEXEYAB_BUILD/fake/bin/darknet
    BARE=$ALEXEYAB_BUILD/fake/bin/darknet-without-cudnn
    export FAKE_GPUS=3
    enter_folder
    small_data 60 24
}

# digits: the images of train.list, each with the label of its digit beside it.
digits() {
    local image n=0
    mkdir -p d out
    while IFS= read -r image; do
        ln -s "$(realpath "$image")" "d/$n.png"
        [[ $image =~ digit-([0-9]) ]]
        echo "${BASH_REMATCH[1]} .5 .5 .6 .8" >"d/$n.txt"
        echo "d/$n.png"
        n=$((n + 1))
    done <train.list >boxes.list
    seq 0 9 >names
    printf '%s\n' classes=10 train=boxes.list valid=boxes.list names=names backup=out >digits.data
}

# detector BATCH_NORMALIZE KEY=VALUE...: of yolov4-tiny's kind; keys are those of [net].
detector() {
    local part normalize=batch_normalize=$1
    shift
    net_section width=16 height=16 channels=3 batch=6 subdivisions=3 learning_rate=0.0005 max_batches=4 cmn_batch=global "$@"
    for part in '8 2 mish' '16 1 mish'; do
        read -r filters stride activation <<<"$part"
        printf '%s\n' '[convolutional]' "$normalize" "filters=$filters" size=3 "stride=$stride" pad=1 "activation=$activation"
    done
    printf '%s\n' '[route]' layers=-1 groups=2 group_id=1 \
        '[convolutional]' "$normalize" filters=8 size=3 stride=1 pad=1 activation=leaky \
        '[convolutional]' "$normalize" filters=8 size=1 stride=1 pad=1 activation=mish '[shortcut]' from=-2 activation=linear \
        '[route]' layers=-1,-4 '[maxpool]' size=2 stride=2 '[convolutional]' size=1 stride=1 pad=1 filters=30 activation=linear \
        '[yolo]' mask=0,1 anchors=15,20,20,27 classes=10 num=2 jitter=.1 scale_x_y=1.05 cls_normalizer=1.0 \
        iou_normalizer=0.07 iou_loss=ciou ignore_thresh=.7 truth_thresh=1 random=0 resize=1.5 nms_kind=greedynms
}

# boxes_on N ARGUMENTS...: trains net.cfg on N ranks, which compare the bits of their weights; N.weights.
boxes_on() {
    local n=$1
    shift
    darknet_on "$n" detector train digits.data net.cfg -dont_show -cmn -cmn_seed 7 -cmn_validate 0 -cmn_verify 1 "$@" >train.log 2>&1 ||
        { tail -n 30 train.log; return 1; }
    cp out/net_final.weights "$n.weights"
}

# as_one N ARGUMENTS...: N ranks have the weights of one.
as_one() {
    local n=$1
    shift
    boxes_on 1 "$@"
    boxes_on "$n" "$@"
    assert_close 1.weights "$n.weights" 1e-6
}

@test "AlexeyAB's tree on GPUs: what the patches change compiles with CUDA, cuDNN and half precision without a warning" {
    CUDNN=1 "$REPO/setup/cuda.sh" probe.mk 2>why || skip "no CUDA with cuDNN: $(cat why)"
    objects=(darknet/src/{network_kernels,dark_cuda,batchnorm_layer}.o cmn/engine/{tree_alexeyab,tensors}.o)
    run -0 make -s -C "$REPO" SAN= DARKNET_TREE="$ALEXEYAB_TREE" GPU=1 CUDNN=1 CUDNN_HALF=1 ARCH=90 \
        "${objects[@]/#/build/gpu-cudnn-half-alexeyab/}"
    [[ $output != *warning* ]]
    run -2 make -s -C "$REPO" SAN= DARKNET_TREE="$ALEXEYAB_TREE" GPU=1 CUDNN_HALF=1 help
    [[ $output == *'CUDNN_HALF=1 belongs to a build with cuDNN: add GPU=1 CUDNN=1'* ]]
}

@test "AlexeyAB's tree on GPUs: a detector and a classifier have the weights of the build for the CPU, on 1 to 3 ranks" {
    digits
    detector 0 >net.cfg
    DARKNET=$CPU boxes_on 1
    mv 1.weights cpu.weights
    DARKNET=$BARE boxes_on 2
    assert_close cpu.weights 2.weights 1e-5
    # Without cuDNN a convolution overwrites what shortcuts and routes added to the gradient before.
    boxes_on 1
    assert_far cpu.weights 1.weights 1e-3
    sed -i '/^\[shortcut\]/,/^activation/d; s/^layers=-1,-4/layers=-1/' net.cfg
    DARKNET=$CPU boxes_on 1
    mv 1.weights cpu.weights
    boxes_on 3
    assert_close cpu.weights 3.weights 1e-5
    grep -q 'on GPUs' train.log
    # Its validation, too: on ranks that have other numbers of images.
    net_section batch=24 subdivisions=4 cmn_batch=global learning_rate=0.05 channels=3 max_batches=2 >net.cfg
    printf '%s\n' '[convolutional]' filters=8 size=3 stride=4 pad=1 activation=mish '[avgpool]' \
        '[convolutional]' filters=10 size=1 stride=1 pad=1 activation=linear '[softmax]' groups=1 >>net.cfg
    for run in "1 $CPU" "3 $DARKNET"; do
        DARKNET=${run#* } train_on "${run%% *}" net.cfg -dont_show -cmn_validate 1 -cmn_verify 1
        jq -c '[.[-1] | ."validation/main/accuracy", (."validation/main/loss", ."main/loss" | . * 1e4 | round), ."main/accuracy"]' out/net.json
        [[ -f first.weights ]] || cp out/net_final.weights first.weights
        assert_close first.weights out/net_final.weights 1e-5
    done >rows
    grep '^\[' rows | uniq -c
    [[ $(grep -c '^\[' rows) -eq 2 && $(grep '^\[' rows | sort -u | wc -l) -eq 1 ]]
}

@test "AlexeyAB's tree on GPUs: batch normalisation with the statistics of all images" {
    digits
    # Without sharing the statistics of 6 images, 2 ranks compute others.
    detector 1 subdivisions=1 ema_alpha=0.9 >net.cfg
    as_one 2 -cmn_sync_bn on
    boxes_on 2
    assert_far 1.weights 2.weights 1e-5
}

@test "AlexeyAB's tree on GPUs: its own update takes sums that are clipped, compressed or one step late, and resumes" {
    digits
    echo savelast=2 >>digits.data # it writes the average then, too
    # Scaled losses give the weights of those that are not. Clipping looks at the gradient itself, and not at what loss_scale makes of it.
    detector 1 burn_in=3 >net.cfg
    boxes_on 1 -cmn_clip 20
    mv 1.weights plain.weights
    detector 1 burn_in=3 loss_scale=128 >net.cfg
    boxes_on 2 -cmn_clip 20
    assert_close plain.weights 2.weights 1e-5
    detector 1 adam=1 learning_rate=0.0001 >net.cfg
    as_one 2 -cmn_clip 0.05 -cmn_nonfinite skip
    # A layer that is left out at first keeps the sums of all ranks.
    detector 1 burn_in=3 loss_scale=128 ema_alpha=0.9 >net.cfg
    sed -i '0,/filters=8/s//filters=8\nburnin_update=1/; s/^filters=30/filters=30\ndont_update=2/' net.cfg
    as_one 3 -cmn_clip 1e9
    assert_far plain.weights 1.weights 1e-3
    for keys in '-cmn_local_steps 2' '-cmn_double_buffering 1 -cmn_communicator flat -cmn_compress powersgd'; do
        rm -f out/net-*.checkpoint
        if [[ $keys == *powersgd* ]]; then # small tensors travel exactly
            sed -i 's/^filters=16/filters=64/' net.cfg
            boxes_on 1
        fi
        # shellcheck disable=SC2086  # keys and their values
        boxes_on 2 -cmn_checkpoint 3 $keys
        mv 2.weights whole.weights
        mv out/net_ema.weights whole-ema.weights
        assert_far 1.weights whole.weights 1e-6
        assert_close 1.weights whole.weights 0.1
        rm out/net-4.checkpoint
        # shellcheck disable=SC2086
        boxes_on 2 -cmn_checkpoint 3 $keys
        grep 'resumed from out/net-3.checkpoint, iteration 3' train.log
        cmp whole.weights 2.weights
        cmp whole-ema.weights out/net_ema.weights
    done
}

# For single images cuDNN has another algorithm than for more, with another kind of products.
@test "AlexeyAB's tree on GPUs: each algorithm of cuDNN runs with its own kind of products, and half precision where a GPU has it" {
    digits
    detector 1 subdivisions=6 >net.cfg
    as_one 2
    detector 1 loss_scale=128 >net.cfg
    boxes_on 1
    mv 1.weights full.weights
    export FAKE_CAPABILITY=7
    boxes_on 1
    assert_close full.weights 1.weights 0.05
    assert_far full.weights 1.weights 1e-3
    # Each micro-batch rounds the sum so far to 16 bits.
    boxes_on 2
    assert_close 1.weights 2.weights 1e-3
}

# refuses N MESSAGE ARGUMENTS...: a training of net.cfg on N ranks ends with status 1 and this message.
refuses() {
    local n=$1 message=$2
    shift 2
    run -1 darknet_on "$n" detector train digits.data net.cfg -dont_show -cmn "$@"
    [[ $output == *"$message"* ]]
}

@test "AlexeyAB's tree on GPUs: what is not offered is refused with the reason" {
    digits
    detector 1 use_cuda_graph=1 >net.cfg
    refuses 1 'use_cuda_graph in the cfg: it records the first prediction'
    detector 1 >net.cfg
    sed -i '0,/filters=8/s//filters=8\nstream=1/' net.cfg
    refuses 1 'stream in the cfg: the sum over the ranks waits for one stream'
    detector 1 loss_scale=128 >net.cfg
    refuses 1 "cmn_lars=0.01 does not go with loss_scale: Darknet's own update has one learning rate for all tensors" -cmn_lars 0.01
    detector 1 adam=1 >net.cfg
    refuses 2 'cmn_local_steps=2 does not go with adam=1 in the cfg' -cmn_local_steps 2
    refuses 1 'GPU -1 cannot be used: ' -nogpu
    FAKE_CAPABILITY=8 refuses 1 "cmn_mixed=bf16 does not go with AlexeyAB's Darknet: it has half precision of its own: remove cmn_mixed, and build with CUDNN_HALF=1" \
        -cmn_mixed bf16
    FAKE_GPUS=0
    refuses 1 'GPU 0 cannot be used: '
    [[ $output == *'(a build without GPU=1 trains on the CPU)'* ]]
}
