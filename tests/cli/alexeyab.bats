#!/usr/bin/env bats
# AlexeyAB's Darknet: its tree is patched, and trains on several ranks to what one rank makes (docs/use/alexeyab.md). It is
# ALEXEYAB_TREE, or the tarball beside the checkout; without either the tests are skipped. They build it, with OpenCV where
# that is installed, and with its own matrix products, so that the unpatched tree computes the same bits.

load helpers

setup_file() {
    local tarball=$BATS_TEST_DIRNAME/../../../shared/alexeyab/darknet-59596d78.tar.xz
    if [[ -z ${ALEXEYAB_TREE:-} && -f $tarball ]]; then
        tar -xJf "$tarball" -C "$BATS_FILE_TMPDIR"
        ALEXEYAB_TREE=$BATS_FILE_TMPDIR/darknet
    fi
    [[ -n ${ALEXEYAB_TREE:-} ]] || return 0 # setup skips: bats 1.8 takes a skip here for a failure
    export ALEXEYAB_TREE
    ALEXEYAB_WITH=(GEMM=own)
    if pkg-config --exists opencv4; then ALEXEYAB_WITH+=(OPENCV=1); fi
    if grep -qw avx2 /proc/cpuinfo; then ALEXEYAB_WITH+=(AVX=1); fi
    export ALEXEYAB_MAKE="${ALEXEYAB_WITH[*]}"
    (cd "$REPO" && make -s DARKNET_TREE="$ALEXEYAB_TREE" "${ALEXEYAB_WITH[@]}") >"$BATS_FILE_TMPDIR/build.log" 2>&1 ||
        { cat "$BATS_FILE_TMPDIR/build.log"; return 1; }
}

setup() {
    local variant=cpu-alexeyab
    [[ -n ${ALEXEYAB_TREE:-} ]] || skip 'no AlexeyAB tree: set ALEXEYAB_TREE'
    [[ $ALEXEYAB_MAKE != *OPENCV* ]] || variant+=-opencv
    [[ $ALEXEYAB_MAKE != *AVX* ]] || variant+=-avx
    DARKNET=$REPO/build/$variant-gemm/bin/darknet
    enter_folder
}

# boxes COUNT: COUNT images of MNIST in d/, each with the label of its digit beside it; train.list, valid.list, digits.data.
boxes() {
    local image n=0
    [[ -f $REPO/data/mnist/train.list ]] || skip 'data/mnist is missing: make mnist'
    mkdir -p d out
    while IFS= read -r image; do
        ln -s "$REPO/$image" "d/$n.png"
        [[ $image =~ digit-([0-9]) ]]
        echo "${BASH_REMATCH[1]} .5 .5 .6 .8" >"d/$n.txt"
        echo "d/$n.png"
        n=$((n + 1))
    done < <(head -n "$1" "$REPO/data/mnist/train.list") >train.list
    head -n 20 train.list >valid.list
    seq 0 9 >names
    printf '%s\n' classes=10 train=train.list valid=valid.list names=names backup=out >digits.data
}

# tiny KEY=VALUE...: a network of yolov4-tiny's kind; keys are those of [net].
tiny() {
    local part
    net_section width=64 height=64 channels=3 batch=24 subdivisions=6 learning_rate=0.000003 cmn_batch=global "$@"
    for part in '16 2 mish' '32 2 mish' '32 1 mish'; do
        read -r filters stride activation <<<"$part"
        printf '%s\n' '[convolutional]' batch_normalize=1 "filters=$filters" size=3 "stride=$stride" pad=1 "activation=$activation"
    done
    printf '%s\n' '[route]' layers=-1 groups=2 group_id=1 \
        '[convolutional]' batch_normalize=1 filters=16 size=3 stride=1 pad=1 activation=leaky \
        '[route]' layers=-1,-2 '[convolutional]' batch_normalize=1 filters=32 size=1 stride=1 pad=1 activation=leaky \
        '[route]' layers=-5,-1 '[maxpool]' size=2 stride=2 \
        '[convolutional]' batch_normalize=1 filters=32 size=3 stride=1 pad=1 activation=mish \
        '[convolutional]' size=1 stride=1 pad=1 filters=30 activation=linear \
        '[yolo]' mask=0,1 anchors=30,40,40,55 classes=10 num=2 jitter=.1 scale_x_y=1.05 cls_normalizer=1.0 \
        iou_normalizer=0.07 iou_loss=ciou ignore_thresh=.7 truth_thresh=1 random=0 resize=1.5 nms_kind=greedynms
}

# detect_on N ARGUMENTS...: detector train on N ranks.
detect_on() {
    local n=$1
    shift
    darknet_on "$n" detector train digits.data net.cfg -dont_show -cmn -cmn_seed 7 -cmn_validate 0 "$@" >train.log 2>&1 ||
        { tail -n 30 train.log; return 1; }
}

# stock: the unpatched tree, built as its own Makefile builds it.
stock() {
    local with=$ALEXEYAB_MAKE tree=$BATS_FILE_TMPDIR/stock
    if [[ ! -x $tree/darknet ]]; then
        cp -r "$ALEXEYAB_TREE" "$tree"
        chmod -R u+w "$tree"
        mkdir -p "$tree/obj" "$tree/backup" "$tree/results"
        # shellcheck disable=SC2086  # words
        make -s -C "$tree" -j "$(nproc)" ${with#GEMM=own} darknet >"$BATS_FILE_TMPDIR/stock.log" 2>&1 || { cat "$BATS_FILE_TMPDIR/stock.log"; return 1; }
    fi
    STOCK=$tree/darknet
}

@test "AlexeyAB's tree: built without a warning from the module; parts that are missing and patches that do not fit are named" {
    run ! grep -E '(^|[ /])cmn/.*warning' "$BATS_FILE_TMPDIR/build.log"
    cp -r "$ALEXEYAB_TREE" tree
    chmod -R u+w tree
    sed -i 's/l.backward(l, state);/l.backward (l, state);/' tree/src/network.c
    run env DARKNET_TREE="$PWD/tree" "$REPO/darknet/obtain.sh" --patches "$REPO/patches/alexeyab" new
    [[ $status -ne 0 && ${lines[-1]} == *'patches/alexeyab/hooks/step.patch does not apply to DARKNET_TREE='*'commit 59596d78'* && ! -e new ]]
    rm -r tree/3rdparty
    run env DARKNET_TREE="$PWD/tree" "$REPO/darknet/obtain.sh" --patches "$REPO/patches/alexeyab" new
    [[ $status -ne 0 && $output == *'no folder 3rdparty/stb/include'* ]]
}

@test "AlexeyAB's tree: without -cmn the patched one computes the bits of the unpatched one" {
    boxes 1
    stock
    gcc -std=c11 -shared -fPIC "$REPO/tests/patches/fixed_time.c" -o time.so
    # Loader threads race for rand() in both; with one image and no augmentation nothing depends on that.
    tiny max_batches=4 learning_rate=0.0001 | sed 's/jitter=.1/jitter=0/; s/resize=1.5/resize=1/' >net.cfg
    for darknet in "$STOCK" "$DARKNET"; do
        LD_PRELOAD=$PWD/time.so "$darknet" detector train digits.data net.cfg -dont_show >train.log 2>&1 || { tail train.log; false; }
        mv out/net_final.weights "$(basename "$(dirname "$darknet")").weights"
    done
    cmp stock.weights bin.weights
}

@test "AlexeyAB's tree: after 20 iterations 2 and 3 ranks have the weights of one, with mish, CIoU, EMA, and mosaic where OpenCV is there" {
    boxes 100
    mosaic=0
    [[ $ALEXEYAB_MAKE != *OPENCV* ]] || mosaic=1
    tiny saturation=1.5 exposure=1.5 hue=.1 mosaic=$mosaic ema_alpha=0.998 >net.cfg
    for n in 1 2 3; do
        detect_on "$n"
        mv out/net_final.weights "$n.weights"
    done
    detect_on 2 -cmn_sync_bn on
    mv out/net_final.weights sync.weights
    for other in 2 3 sync; do
        assert_close 1.weights "$other.weights" 1e-6
    done
    [[ $(seen 3.weights) -eq 480 ]]
}

@test "AlexeyAB's tree: a training that was ended and resumed has the same bits; 3 ranks continue from the checkpoint of 2" {
    boxes 100
    tiny ema_alpha=0.998 >net.cfg
    detect_on 2 -cmn_checkpoint 7
    mv out/net_final.weights whole.weights
    rm out/net-20.checkpoint
    cp -r out three
    detect_on 2 -cmn_checkpoint 7
    grep -q 'resumed from out/net-14.checkpoint' train.log
    cmp whole.weights out/net_final.weights
    rm -r out
    mv three out
    detect_on 3 -cmn_checkpoint 7
    assert_close whole.weights out/net_final.weights 1e-6
}

@test "AlexeyAB's tree: -map on 2 ranks saves the best weights, and the unpatched tree finds the same mAP in them" {
    boxes 60
    stock
    tiny max_batches=100 batch=8 subdivisions=2 learning_rate=0.0005 burn_in=10 >net.cfg
    detect_on 2 -map
    map=$(sed -n 's/.*mean_average_precision (mAP@0.50) = \([0-9.]*\).*/\1/p' train.log | tail -n 1)
    "$STOCK" detector map digits.data net.cfg out/net_best.weights >map.log 2>&1 || true
    echo "mAP $map"
    grep -a 'mAP@0.50' map.log
    awk -v map="$map" 'BEGIN { exit !(map > 0) }'
    grep -aq "(mAP@0.50) = $map," map.log
}

@test "AlexeyAB's tree: a classifier with cutmix: 2 ranks have the weights of one" {
    small_data 200 50
    net_section batch=24 subdivisions=4 cmn_batch=global cutmix=1 learning_rate=0.001 channels=3 >net.cfg
    printf '%s\n' '[convolutional]' batch_normalize=1 filters=8 size=3 stride=2 pad=1 activation=mish '[avgpool]' \
        '[convolutional]' filters=10 size=1 stride=1 pad=1 activation=linear '[softmax]' groups=1 >>net.cfg
    for n in 1 2; do
        train_on "$n" net.cfg -dont_show
        mv out/net_final.weights "$n.weights"
    done
    assert_close 1.weights 2.weights 1e-6
}

@test "AlexeyAB's tree: what ranks cannot do together is refused with the reason" {
    boxes 24
    tiny >net.cfg
    for wrong in 'track=1|track=1 in the cfg' 'contrastive=1|contrastive=1 in the cfg' 'weights_reject_freq=9|weights_reject_freq'; do
        tiny "${wrong%%|*}" >net.cfg
        run ! detect_on 2
        [[ $output == *"${wrong#*|}"* ]]
    done
    tiny >net.cfg
    run ! detect_on 2 -gpus 0,1
    [[ $output == *'each rank trains on one device'* ]]
    run ! darknet_on 2 detector valid digits.data net.cfg -cmn
    [[ $output == *'detector valid of AlexeyAB'* ]]
}
