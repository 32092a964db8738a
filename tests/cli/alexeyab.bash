# shellcheck shell=bash disable=SC2034,SC2154  # read by those who load it; from helpers.bash
# AlexeyAB's tree for alexeyab.bats, alexeyab_features.bats and tests/hosts/alexeyab.bats. `make tests` builds it, as tests/tree.mk
# says, from ALEXEYAB_TREE, or the work tree in the user's cache; without either the tests are skipped.

# alexeyab_tree: sets ALEXEYAB_TREE and ALEXEYAB_BUILD, where its program is. In setup_file.
alexeyab_tree() {
    [[ -n ${ALEXEYAB_TREE:-} ]] || return 0 # setup skips: bats 1.8 takes a skip in setup_file for a failure
    ALEXEYAB_BUILD=${ALEXEYAB_BUILD:-$(find "$REPO/build" -maxdepth 1 -name 'cpu-alexeyab*-gemm' -print -quit)}
    [[ -x $ALEXEYAB_BUILD/bin/darknet ]] || { echo "AlexeyAB's tree is not built: make tests"; return 1; }
    export ALEXEYAB_TREE ALEXEYAB_BUILD
}

# alexeyab_program: in setup; skips where the tree is not there.
alexeyab_program() {
    [[ -n ${ALEXEYAB_TREE:-} ]] || skip 'no AlexeyAB tree: set ALEXEYAB_TREE'
    DARKNET=$ALEXEYAB_BUILD/bin/darknet
}

needs_mosaic() {
    [[ $ALEXEYAB_BUILD == *-opencv* ]] || skip 'no OpenCV (libopencv-dev), without which that tree has no mosaic'
}

setup_file() {
    alexeyab_tree
    [[ -n ${ALEXEYAB_TREE:-} ]] || return 0
    export ALEXEYAB_STOCK=$REPO/build/stock-${ALEXEYAB_BUILD##*/}/darknet
    build_stock
}

# build_stock: ALEXEYAB_STOCK, the unpatched tree, as its own Makefile builds it. It is built anew where the tree has changed,
# and by one of the test files that run at a time.
build_stock() {
    local dir=${ALEXEYAB_STOCK%/*} sum with
    (
        flock 9
        sum=$(cd "$ALEXEYAB_TREE" && find Makefile src include 3rdparty/stb -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum)
        [[ ! -x $ALEXEYAB_STOCK || $(cat "$dir/of") != "$sum" ]] || exit 0
        rm -rf "$dir"
        mkdir -p "$dir"
        cp -r "$ALEXEYAB_TREE/." "$dir"
        chmod -R u+w "$dir"
        mkdir -p "$dir"/{obj,backup,results}
        with=()
        [[ $dir != *-opencv* ]] || with+=(OPENCV=1)
        [[ $dir != *-avx* ]] || with+=(AVX=1)
        make -s -C "$dir" -j "$(nproc)" "${with[@]}" darknet >"$BATS_FILE_TMPDIR/stock.log" 2>&1 9>&- ||
            { cat "$BATS_FILE_TMPDIR/stock.log"; exit 1; }
        echo "$sum" >"$dir/of"
    ) 9>"$dir.lock"
}

setup() {
    alexeyab_program
    STOCK=$ALEXEYAB_STOCK
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
    net_section width=32 height=32 channels=3 batch=24 subdivisions=6 learning_rate=0.000003 cmn_batch=global "$@"
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

# before_last LINES: the network on the standard input with these lines before its last [convolutional].
before_last() {
    awk -v lines="$1" '{ line[NR] = $0 } /^\[convolutional\]/ { last = NR }
        END { for (i = 1; i <= NR; i++) { if (i == last) print lines; print line[i] } }'
}

# detect_on N ARGUMENTS...: detector train on N ranks.
detect_on() {
    local n=$1
    shift
    darknet_on "$n" detector train digits.data net.cfg -dont_show -cmn -cmn_seed 7 -cmn_validate 0 "$@" >train.log 2>&1 ||
        { tail -n 30 train.log; return 1; }
}

# detected NAME N ARGUMENTS...: detect_on, whose last weights become NAME.weights.
detected() {
    detect_on "${@:2}"
    mv out/net_final.weights "$1.weights"
}

# one_and_three: net.cfg on 1 and 3 ranks has the same weights: N.weights.
one_and_three() {
    detected 1 1
    detected 3 3
    assert_close 1.weights 3.weights 1e-6
}
