#!/usr/bin/env bats
# Arguments and data that do not fit a trainer: one line, with -cmn and without, and neither a crash nor a silent training.

load helpers

setup() {
    enter_folder
    small_data 4 1
    mkdir -p images labels out
    i=0
    while read -r path; do
        ln -s "$PWD/$path" images/$i.png
        echo '1 .5 .5 .4 .4' >labels/$i.txt
        i=$((i + 1))
    done <train.list
    ls images/* >images.list
    printf '%s\n' classes=2 train=images.list backup=out >images.data
}

# both PATTERN ARGUMENTS...: on 2 ranks, and as Darknet alone.
both() {
    local pattern=$1
    shift
    fails_clearly_on 2 "$pattern" "$@" -cmn
    fails_clearly "$pattern" "$DARKNET" "$@"
}

# net_cfg CHANNELS OUTPUTS LAST...
net_cfg() {
    net_section batch=4 width=32 height=32 channels="$1" max_batches=2
    printf '%s\n' '[connected]' "output=$2" activation=linear "${@:3}"
}

@test "no cfg" {
    both 'CFG is missing, usage: .*darknet detector train DATA CFG \[WEIGHTS\]' detector train images.data
    for command in 'regressor train images.data' 'segmenter train images.data' 'isegmenter train images.data' \
        'yolo train -data images.data' 'coco train -data images.data' 'cifar train -data images.data' \
        'cifar distill -data images.data' 'tag train -data images.data' 'super train -data images.data'; do
        # shellcheck disable=SC2086  # words
        fails_clearly 'CFG is missing, usage: ' "$DARKNET" $command
    done
}

@test "networks for other images, or for another number of classes" {
    awk 'BEGIN { for (i = 0; i < 4; i++) { printf "%c", 1 + i; for (j = 0; j < 3072; j++) printf "x" } }' >cifar.bin
    ls cifar.bin >cifar.list
    printf '%s\n' train=cifar.list backup=out >cifar.data
    net_cfg 1 10 '[softmax]' >gray.cfg
    both 'Images of 3072 values for a network with 1024 inputs' cifar train gray.cfg -data cifar.data
    for outputs in 9 12; do
        net_cfg 3 $outputs '[softmax]' >$outputs.cfg
        both "Truth of 10 values for a network with $outputs" cifar train $outputs.cfg -data cifar.data
    done
    net_cfg 3 10 '[softmax]' >ten.cfg
    mkdir results
    printf '%s\n' 1,2 1,2 >results/ensemble.csv
    both 'results/ensemble.csv: 2 lines of 2 numbers for 4 images of 10 classes' cifar distill ten.cfg -data cifar.data
    printf '%s\n' 1,2 1,2,3 >results/ensemble.csv
    fails_clearly 'results/ensemble.csv: line 2 has 3 numbers, the first one 2' "$DARKNET" cifar distill ten.cfg -data cifar.data
    net_cfg 3 3 '[cost]' type=sse >numbers.cfg
    fails_clearly_on 2 'images.data:[0-9]+: classes=2, and the network of numbers.cfg has 3 outputs' regressor train images.data numbers.cfg -cmn
}

@test "boxes of unknown classes, and of nan" {
    net_cfg 3 192 '[detection]' classes=2 coords=4 side=4 num=2 softmax=0 sqrt=1 rescore=1 forced=0 jitter=.2 coord_scale=5 \
        object_scale=1 noobject_scale=.5 class_scale=1 >grid.cfg
    {
        net_section batch=4 width=32 height=32 channels=3 max_batches=2
        printf '%s\n' '[convolutional]' filters=14 stride=8 size=3 pad=1 activation=linear \
            '[yolo]' mask=0,1 anchors=8,8,16,16 classes=2 num=2 jitter=.2 ignore_thresh=.5 truth_thresh=1
    } >yolo.cfg
    "$DARKNET" yolo train grid.cfg -data images.data >plain.log 2>&1
    "$DARKNET" detector train images.data yolo.cfg >plain.log 2>&1
    echo images/2.png >images.list    # Darknet alone draws with replacement: it might never take one of four
    echo '2 .5 .5 .4 .4' >labels/2.txt
    fails_clearly 'labels/2.txt: class 2, but there are 2 classes' "$DARKNET" yolo train grid.cfg -data images.data
    echo '0 nan .5 .4 .4' >labels/2.txt
    both 'labels/2.txt:1: not a class and four numbers' detector train images.data yolo.cfg
}
