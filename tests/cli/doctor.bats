#!/usr/bin/env bats
# darknet cmn doctor: lists, images, labels, cfg and memory before a training.
# shellcheck disable=SC2030,SC2031,SC2154  # mpiexec: helpers.bash; tests are functions that shellcheck takes for subshells

load helpers

setup() {
    enter_folder
}

# boxes: my.data and my.cfg, a detector of 3 classes with 30 images to train and 10 to validate with; nothing is wrong with them.
boxes() {
    [[ -f $REPO/data/mnist/train.list ]] || skip 'data/mnist is missing: make mnist'
    mkdir -p images labels
    awk -v repo="$REPO" 'NR > 40 { exit }
        { printf "cp \047%s/%s\047 images/%d.png\n", repo, $0, NR; print NR % 3, ".5 .5 .4 .3" >"labels/" NR ".txt" }' "$REPO/data/mnist/train.list" | sh
    printf 'images/%d.png\n' {1..30} >train.list
    printf 'images/%d.png\n' {31..40} >valid.list
    printf '%s\n' ant bee cat >names.txt
    printf '%s\n' classes=3 train=train.list valid=valid.list names=names.txt backup=out >my.data
    net_section width=32 height=32 channels=3 batch=8 subdivisions=2 max_batches=6000 cmn_batch=global >my.cfg
    printf '%s\n' '[convolutional]' size=1 stride=1 filters=16 activation=linear \
        '[yolo]' mask=0,1 anchors=4,4,8,8,16,16 classes=3 num=3 >>my.cfg
}

# doctor_on N ARGUMENTS...: sets status; what it says goes to report.txt. One process needs no mpiexec.
doctor_on() {
    local start=("$DARKNET")
    status=0
    [[ $1 -eq 1 ]] || start=(darknet_on "$1")
    "${start[@]}" cmn doctor "${@:2}" >report.txt 2>err.txt || status=$?
    echo "status $status"
    cat report.txt err.txt
}

# finds TITLE LINE...: the report has the title, and those lines below it.
finds() {
    local line
    grep -qxF "$1" report.txt || { echo "no title: $1"; return 1; }
    for line in "${@:2}"; do
        awk -v title="$1" -v line="  $line" '$0 == title { on = 1; next } /^[^ ]/ { on = 0 } on && $0 == line { found = 1 } END { exit !found }' \
            report.txt || { echo "not below $1: $line"; return 1; }
    done
}

# spoil: as many mistakes as fit into lists, images and labels.
spoil() {
    printf 'images/3.png\nimages/none.png\nimages/folder.png\nimages/empty.png\nimages/junk.png\n' >>train.list
    printf '\nimages/5.png\n' >>valid.list
    sed -i 's/$/\r/' train.list
    rm labels/13.txt
    mkdir images/folder.png labels/13.txt
    : >images/empty.png
    echo junk >images/junk.png
    touch labels/folder.txt labels/empty.txt labels/junk.txt
    head -c 60 images/14.png >start
    mv start images/14.png
    rm labels/7.txt
    echo '0 nan .5 .2 .2' >labels/8.txt
    printf '3 .5 .5 .2 .2\n\n-1 .5 .5 .2 .2\r\n' >>labels/9.txt
    printf '0 200 100 50 50\n1 .5 .5 0 .1\n0 .9 .5 .3 .1\n' >labels/10.txt
    printf 'hello\n0 .5 .5 .1\n' >labels/11.txt
    echo '0 .5 .5 .1 .1 .9' >labels/12.txt
    head -c 3000 /dev/urandom >labels/15.txt
    for _ in {1..95}; do echo '0 .5 .5 .1 .1'; done >labels/16.txt
}

@test "a detector with which nothing is wrong, and status 0" {
    boxes
    doctor_on 2 my.data my.cfg -cmn
    [[ $status -eq 0 && ! -s err.txt ]]
    printf '%s\n' 'my.data and my.cfg: a detector, classes=3' 'train train.list: 30 images' 'valid valid.list: 10 images' \
        '40 different images, 40 of them readable, 28 x 28 pixels on average; 40 label files with 40 boxes' |
        diff - <(head -n 4 report.txt)
    [[ $(tail -n 1 report.txt) == 'doctor: nothing is wrong' && $(wc -l <report.txt) -eq 7 && ! -e out ]]
    "$DARKNET" cmn doctor my.data my.cfg >alone.txt
    diff <(grep -vE '^memory|^  free' alone.txt) <(grep -vE '^memory|^  free' report.txt)
}

@test "a list that never comes is named" {
    boxes
    mkfifo fifo.list
    sed -i 's/^train=.*/train=fifo.list/' my.data
    for n in 1 2; do
        doctor_on $n my.data my.cfg -cmn_timeout 2
        [[ $status -ne 0 ]]
        grep 'nothing moved for 2 s in: reading the .data file and lists (fifo.list)$' err.txt
    done
}

@test "a detector whose images are not square, a comment behind a word, an image that viewers turn" {
    boxes
    sed -i 's/^height=32/height=64/; s/^activation=linear/& # as in all cfgs/; s/^policy=constant/& ; no steps/' my.cfg
    doctor_on 1 my.data my.cfg
    [[ $status -eq 0 && $(tail -n 1 report.txt) == 'doctor: nothing is wrong' ]]
    sed -i 's/^activation=linear/activation=leaky/' my.cfg
    # An EXIF part with orientation 6 behind the first mark of a JPEG.
    tail -c +2 "$REPO/fuzz/seeds/image/rgb-jpg" >plain.jpg
    { head -c 2 plain.jpg; printf '\xff\xe1\x00\x22Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0'; tail -c +3 plain.jpg; } >images/turned.jpg
    echo '0 .5 .5 .2 .2' >labels/turned.txt
    echo 'images/turned.jpg  ' >>train.list
    doctor_on 1 my.data my.cfg
    [[ $status -eq 0 ]]
    line='images/turned.jpg: viewers turn this image by its EXIF part, and Darknet does not: boxes drawn in such a viewer lie elsewhere; turn its pixels (exiftran -ai, jhead -autorot)'
    finds 'note: 1 image is turned by viewers' "train.list:31: $line"
    grep -E '^  my.cfg:[0-9]+: this activation before \[yolo\]: it takes numbers of any sign: write activation=linear$' report.txt
    # The training says the same, and of names, too.
    sed -i 's/^max_batches=.*/max_batches=4/' my.cfg
    printf '%s\n' ant '' bee cat '' >names.txt
    echo 'images/turned.jpg  ' >train.list
    darknet_on 1 detector train my.data my.cfg -cmn >train.log 2>&1
    grep -F "$line. 'darknet cmn doctor' lists all such images" train.log
    grep -F 'cmn: names.txt: 4 lines for classes=3' train.log
    # An image of the valid list is missing: before anything is trained.
    echo images/none.png >>valid.list
    rm -r out
    run -1 darknet_on 1 detector train my.data my.cfg -cmn
    [[ $output == *'Cannot load image "images/none.png" of the valid list: No such file or directory'* && $output != *' avg,'* ]]
}

@test "images and label files: every mistake with its file and line, the same text on 1 and 3 ranks, status 1" {
    boxes
    spoil
    doctor_on 3 my.data my.cfg -cmn
    [[ $status -eq 1 ]]
    finds 'fault: 1 image is missing' 'train.list:32: images/none.png: No such file or directory'
    finds 'fault: 4 images cannot be read' 'train.list:33: images/folder.png: Is a directory' 'train.list:34: images/empty.png: an empty file' \
        'train.list:35: images/junk.png: not a JPEG, PNG, BMP, PGM or PPM file' \
        'train.list:14: images/14.png: PNG: the file ends before the last pixel'
    # The loader's own words.
    for line in '14.png: PNG: the file ends before the last pixel' 'junk.png: not a JPEG, PNG, BMP, PGM or PPM file' \
        'folder.png: Is a directory' 'empty.png: an empty file' 'none.png: No such file or directory'; do
        fails_clearly "^Cannot load image \"images/${line%%:*}\": ${line#*: }$" "$DARKNET" imtest "images/${line%%:*}"
    done
    finds 'fault: 1 image is listed more than once' 'train.list:31: images/3.png is in line 3 already'
    finds 'note: 1 image or list serves training and validation' 'valid.list:12: images/5.png is in train.list:5, too'
    finds 'fault: 1 image has no label file' \
        'train.list:7: labels/7.txt: no label file for images/7.png; create an empty one for an image without objects'
    # Of a file that has many, the first.
    finds 'fault: 5 labels cannot be read' 'labels/8.txt:1: not a class and four numbers: 0 nan .5 .2 .2' \
        'labels/11.txt:1: not a class and four numbers: hello' 'labels/12.txt:1: not a class and four numbers: 0 .5 .5 .1 .1 .9 (six numbers, as with a confidence? a label has five: class x y width height)' \
        'train.list:13: labels/13.txt: Is a directory'
    finds 'fault: 2 boxes have an unknown class' 'labels/9.txt:2: class 3, and with classes=3 they are 0 to 2' \
        'labels/9.txt:4: class -1, and with classes=3 they are 0 to 2'
    finds 'fault: 1 box has no area' 'labels/10.txt:2: a box of 0 x 0.1 around 0.5, 0.5: it has no area, or less than a thousandth on a side, and Darknet leaves it out'
    finds 'fault: 1 box lies outside of its image' \
        'labels/10.txt:1: a box of 50 x 50 around 200, 100: these are parts of the image, 0 to 1, and what lies outside is left out'
    finds 'note: 1 box reaches out of its image' \
        'labels/10.txt:3: a box of 0.3 x 0.1 around 0.9, 0.5: it reaches out of the image, and what lies outside is left out'
    finds 'note: 1 image has too many boxes' 'train.list:16: labels/16.txt: 95 boxes; training takes 90 of them (max= of the last layer)'
    [[ $(tail -n 1 report.txt) == 'doctor: 16 faults, 3 notes' ]]
    run -1 grep -aP '[\x00-\x08\x7f-\xff]' report.txt
    run -1 --separate-stderr "$DARKNET" cmn doctor my.data my.cfg
    diff <(grep -vE '^memory|^  free' <<<"$output") <(grep -vE '^memory|^  free' report.txt)
}

@test "copies under other names, and images that both lists name, whichever ranks have read them" {
    boxes
    for i in 4 5 32 36; do cp images/2.png images/$i.png; done
    cp images/33.png images/39.png
    echo images/7.png >>valid.list
    for n in 1 3; do
        doctor_on $n my.data my.cfg
        [[ $status -eq 0 ]]
        finds 'note: 4 images are copies of others' 'train.list:4: images/4.png is a copy of images/2.png, train.list:2' \
            'train.list:5: images/5.png is a copy of images/2.png, train.list:2' \
            'valid.list:6: images/36.png is a copy of images/32.png, valid.list:2' \
            'valid.list:9: images/39.png is a copy of images/33.png, valid.list:3'
        finds 'note: 2 images serve training and validation' 'valid.list:2: images/32.png is a copy of images/2.png, train.list:2' \
            'valid.list:11: images/7.png is in train.list:7, too'
        [[ $(tail -n 1 report.txt) == 'doctor: nothing is wrong; the notes are worth a look' ]]
    done
}

@test "more than ten of a kind: the first ten of all ranks, and how many more" {
    boxes
    rm labels/{5..29}.txt
    doctor_on 3 my.data my.cfg
    finds 'fault: 25 images have no label file' 'and 15 more'
    [[ $(sed -nE 's/^  train.list:([0-9]+): labels.*/\1/p' report.txt | tr '\n' ' ') == '5 6 7 8 9 10 11 12 13 14 ' ]]
}

@test "files that a user may not read" {
    ((EUID != 0)) || command -v setpriv >/dev/null || skip 'setpriv is not installed'
    boxes
    chmod 0 images/4.png labels/6.txt
    as=()
    ((EUID != 0)) || as=(setpriv --bounding-set=-all --inh-caps=-all)
    run -1 "${as[@]}" "$DARKNET" cmn doctor my.data my.cfg
    [[ $output == *'train.list:4: images/4.png: Permission denied'* ]]
    [[ $output == *'train.list:6: labels/6.txt: Permission denied'* ]]
}

@test "numbers of cfg and .data file that contradict each other, before Darknet would refuse the cfg" {
    boxes
    echo dog >>names.txt
    sed -i 's/^classes=3/classes=4/; s/^backup/bakup/' my.data
    sed -i 's/^filters=16/filters=18/; s/^mask=0,1/mask=0,3/; s/^anchors=4,4,/anchors=/; s/^threads/mosaic=1\nthreads/' my.cfg
    line() { grep -n "^$1" my.cfg | cut -d : -f 1; }
    doctor_on 1 my.data my.cfg
    [[ $status -eq 1 ]]
    finds 'fault: 1 number of classes is wrong' "my.cfg:$(line classes): classes=3, and my.data:1 says classes=4"
    finds 'fault: 1 filters= is wrong' \
        "my.cfg:$(line filters): filters=18 before [yolo] of line $(line '\[yolo'), which needs filters=16: 2 anchors in mask * (classes=3 + 5)"
    finds 'fault: 2 wrong lists of anchors' "my.cfg:$(line anchors): 2 anchors for num=3: it needs 6 numbers, a width and a height each" \
        "my.cfg:$(line mask): mask=0,3 names anchor 3, and with num=3 they are 0 to 2"
    finds 'fault: 1 list of names is wrong' 'names.txt:4: 4 lines for classes=3'
    finds 'fault: 1 key has no effect' 'my.data:5: bakup=out has no effect: unknown key; did you mean backup?'
    finds 'fault: 1 file cannot be used' 'my.data names no folder for weights: add a line backup=FOLDER'
    finds "note: 1 key exists only in AlexeyAB's Darknet, and has no effect here" "my.cfg:$(line mosaic): mosaic=1"
    grep -q '^memory: not looked at' report.txt
}

@test "keys of the cfg without effect, and words that Darknet does not know" {
    boxes
    sed -i 's/^threads/lerning_rate=1\nthreads/' my.cfg
    doctor_on 1 my.data my.cfg
    finds 'fault: 1 key has no effect' "my.cfg:$(grep -n lern my.cfg | cut -d : -f 1): lerning_rate=1 has no effect: unknown key; did you mean learning_rate?"
    [[ $status -eq 1 && ! -s err.txt ]]
    sed -i 's/^activation=linear/activation=mish/' my.cfg
    doctor_on 1 my.data my.cfg
    finds 'fault: 1 word is wrong' "my.cfg:$(grep -n mish my.cfg | cut -d : -f 1): activation=mish: must be one of logistic loggy relu elu selu relie plse hardtan lhtan linear ramp leaky tanh stair "
}

@test "a classifier: labels, outputs, classes" {
    small_data 40 20
    mlp_cfg >mlp.cfg
    doctor_on 1 small.data mlp.cfg
    [[ $status -eq 0 && $(tail -n 1 report.txt) == 'doctor: nothing is wrong' ]]
    cp "$REPO/$(head -n 1 "$REPO/data/mnist/train.list")" some.png
    cp some.png digit-3_digit-4.png
    printf 'some.png\ndigit-3_digit-4.png\n' >>train.list
    sed -i '5d' labels.txt
    doctor_on 1 small.data mlp.cfg
    finds 'fault: 1 list of names is wrong' 'labels.txt has 9 labels for classes=10: add the missing ones, or lower classes'
    grep -q '^  train.list:41: some.png: no label is a part of this path$' report.txt
    echo digit-4 >>labels.txt
    sed -i 's/^classes=10/classes=11/; s/^valid=.*/valid=train.list/' small.data
    echo frog >>labels.txt
    doctor_on 1 small.data mlp.cfg
    [[ $status -eq 1 ]]
    finds 'fault: 1 image has no label' 'train.list:41: some.png: no label is a part of this path'
    finds 'fault: 1 image has several labels' 'train.list:42: digit-3_digit-4.png: 2 labels are parts of this path: digit-3, digit-4'
    finds 'note: 1 list lacks classes' 'train.list: no image of 1 of the 11 classes: frog'
    finds 'fault: 1 number of classes is wrong' 'small.data:1: classes=11, and the network of mlp.cfg has 10 outputs: its last layer needs one for each class'
    grep -q '^  small.data:3: valid=train.list is the list that train= names' report.txt
}

@test "lists that are empty, missing or a folder; cfgs without [net]; arguments" {
    boxes
    printf '\n \r\n' >valid.list
    mkdir folder
    doctor_on 1 my.data my.cfg
    finds 'fault: 1 file cannot be used' 'my.data:3: valid=valid.list: the list is empty'
    sed -i 's/^train=.*/train=folder/; s/^valid=.*/valid=none.list/' my.data
    sed '1,/^\[conv/{/^\[conv/!d}' my.cfg >no_net.cfg
    sed -i 's/^\[yolo\]$/&\njitter=1.5/' no_net.cfg
    printf 'classes\ntop=0\n' >>my.data
    doctor_on 1 my.data no_net.cfg
    [[ $status -eq 1 ]]
    finds 'fault: 2 files cannot be used' 'my.data:2: train=folder: Is a directory' 'my.data:3: valid=none.list: No such file or directory'
    finds 'fault: 2 lines cannot be read' 'my.data:6: not an option, KEY=VALUE: classes' \
        'no_net.cfg:1: the first section is [convolutional], and must be [net]'
    finds 'fault: 2 numbers are wrong' 'my.data:7: top=0: must be 1 to 16777216 classes' \
        'no_net.cfg:7: jitter=1.5: must be 0 to 0.99 (part)'
    : >empty.cfg
    doctor_on 1 my.data empty.cfg
    [[ $status -eq 1 ]]
    printf 'backup=my.data\n' >least.data
    mlp_cfg >mlp.cfg
    doctor_on 1 least.data mlp.cfg
    finds 'fault: 3 files cannot be used' 'least.data: without train= Darknet takes data/train.list: No such file or directory' \
        'least.data: without labels= Darknet takes data/labels.list: No such file or directory' 'least.data:1: backup=my.data: Not a directory'
    finds 'fault: 1 number of classes is wrong' 'least.data: without classes= Darknet takes 2, and the network of mlp.cfg has 10 outputs: add a line classes=10'
    fails_clearly_on 1 'none.data: No such file' cmn doctor none.data my.cfg
    fails_clearly 'the cfg is missing' "$DARKNET" cmn doctor my.data
    fails_clearly 'more.cfg is too much' "$DARKNET" cmn doctor my.data my.cfg more.cfg
    fails_clearly 'unknown argument -json' "$DARKNET" cmn doctor my.data my.cfg -json
    sed 's/^classes=.*/classes=-1/' my.cfg >none.cfg
    fails_clearly 'none.cfg: classes=-1: must be from 0 to' "$DARKNET" cmn doctor my.data none.cfg
}

@test "a training says the same of a missing label file, and of a name that leads to none" {
    boxes
    seq -f 'images/%g.png' 7 7 >train.list
    rm labels/7.txt
    mkdir out
    line='labels/7.txt: no label file for images/7.png; create an empty one for an image without objects$'
    fails_clearly "^$line" "$DARKNET" detector train my.data my.cfg
    fails_clearly_on 1 "^cmn\[rank 0@[^]]*\] $line" detector train my.data my.cfg -cmn -cmn_validate off
    mv images/7.png images/7.bmp
    echo images/7.bmp >train.list
    fails_clearly 'images/7.bmp: the name leads to no label file: .*\.jpg, \.png' "$DARKNET" detector train my.data my.cfg
}

# both_refuse PATTERN CFG KEYS...: doctor and training end with the same line.
both_refuse() {
    local line
    doctor_on 2 my.data "$2" -cmn_validate off "${@:3}"
    line=$(sed -n 's/^cmn\[rank [01]@[^]]*\] //p' err.txt)
    [[ $status -eq 1 && $(wc -l <<<"$line") -eq 1 && $line =~ $1 ]]
    fails_clearly_on 2 "^cmn\[rank [01]@[^]]*\] " detector train my.data "$2" -cmn -cmn_validate off "${@:3}"
    grep -qF "] $line" fails.err
}

@test "a training says the same of a batch that does not divide, and of keys that do not go together" {
    boxes
    mkdir out
    sed 's/^subdivisions=2/subdivisions=8/' my.cfg >thin.cfg
    both_refuse '1 image a micro-batch .* cannot be divided over 2 ranks' thin.cfg -cmn_sync_bn on
    sed 's/^batch=8/batch=1/; s/^subdivisions=2/subdivisions=1/' my.cfg >one.cfg
    both_refuse '1 image a step .* cannot be divided over 2 ranks' one.cfg
    both_refuse 'cmn_exact=on .*cmn_local_steps' my.cfg -cmn_exact on -cmn_local_steps 4
}

# layers N: puts N layers behind my.cfg's [net].
layers() {
    local i
    sed '/^\[conv/,$d' my.cfg >net
    sed -n '/^size=1$/,$p' my.cfg >last
    for ((i = 0; i < $1; i++)); do
        printf '%s\n' '[convolutional]' batch_normalize=1 size=3 stride=1 pad=1 filters=32 activation=leaky
    done | cat net - <(echo '[convolutional]') last >my.cfg
}

# peak COMMAND...: what a process of it had in memory at most, in MiB.
peak() {
    python3 -c 'import resource, subprocess, sys
status = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=sys.stderr).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)
sys.exit(status)' "$@"
}

@test "memory of a rank counts what each way to update keeps" {
    [[ -z $SAN ]] || skip 'instrumented programs take other memory'
    command -v python3 >/dev/null || skip 'python3 is not installed'
    small_data 40 10
    mlp_cfg batch=8 subdivisions=4 cmn_batch=global max_batches=3 | sed '0,/^output=.*/s//output=8000/' >mlp.cfg
    while IFS= read -r keys; do
        # shellcheck disable=SC2086  # several words, or none
        doctor_on 1 small.data mlp.cfg -cmn_validate off $keys
        said=$(sed -nE 's/^memory of a rank: about ([0-9]+) MiB.*/\1/p' report.txt)
        # shellcheck disable=SC2086
        took=$(peak "$DARKNET" classifier train small.data mlp.cfg -cmn -cmn_validate off -clear $keys)
        echo "$keys: said $said MiB, took $took MiB"
        # A copy of the network is 24 MiB.
        ((took > 60 && said > took - 12 && said < took + 12))
    done <<<"
-cmn_checkpoint 3 -cmn_exact on -cmn_ema .9
-cmn_checkpoint 3 -cmn_double_buffering on
-cmn_clip 1 -cmn_ema .9
-cmn_local_steps 2 -cmn_double_buffering on"
}

@test "memory of a rank: what a training then takes, within a fifth; the smallest subdivisions that fits" {
    [[ -z $SAN ]] || skip 'instrumented programs take other memory'
    command -v python3 >/dev/null || skip 'python3 is not installed'
    boxes
    sed -i 's/^\(width\|height\)=.*/\1=256/; s/^batch=.*/batch=8/; s/^max_batches=.*/max_batches=1/' my.cfg
    layers 1
    doctor_on 1 my.data my.cfg -cmn_validate off
    [[ $status -eq 0 ]]
    said=$(sed -nE 's/^memory of a rank: about ([0-9]+) MiB.*/\1/p' report.txt)
    took=$(peak "$DARKNET" detector train my.data my.cfg -cmn -cmn_validate off)
    echo "said $said MiB, took $took MiB"
    ((took > 150 && said * 5 > took * 4 && said * 5 < took * 6))
    grep -qE '^  free for each of the 1 rank of a node: [0-9.]+ [GM]iB; subdivisions=2, and the smallest that fits is 1$' report.txt
    # The layers of a batch in one take twice what is free, those of a part of it less. Darknet takes no layer of more than 2^31 values.
    free=$(sed -nE 's/^  free for each .*: ([0-9]+)\.[0-9] GiB; .*/\1/p' report.txt)
    layers 9
    batch=16
    while ((batch * 250 < free * 2048)); do batch=$((batch * 2)); done
    sed -i "s/^batch=.*/batch=$batch/; s/^subdivisions=.*/subdivisions=1/" my.cfg
    doctor_on 1 my.data my.cfg -cmn_validate off
    grep -qE '; subdivisions=1, and the smallest that fits is [248]$' report.txt
    grep -qE '^  my.cfg: a rank needs about [0-9.]+ GiB and has [0-9.]+ GiB: raise subdivisions to [248]$' report.txt
    [[ $status -eq 1 ]]
    # The training says the same, before the system kills it.
    mkdir -p out
    "$DARKNET" detector train my.data my.cfg -cmn -cmn_validate off >train.log 2>&1 &
    training=$!
    for ((i = 0; i < 600; i++)); do
        ! grep -q 'a rank needs' train.log && kill -0 $training 2>/dev/null || break
        sleep .05
    done
    kill -KILL $training || true
    cat train.log
    same() { sed -nE 's/^(cmn:|  my.cfg:) .*a rank needs about ([0-9.]+) GiB and has ([0-9.]+) GiB: (raise subdivisions to) [248]$/\2 \3 \4/p' "$1"; }
    read -ra doctor < <(same report.txt)
    read -ra training < <(same train.log)
    [[ ${#doctor[@]} -eq 5 && "${doctor[*]:2}" == "${training[*]:2}" ]]
    awk -v a="${doctor[0]}" -v b="${training[0]}" 'BEGIN { exit !(a < 1.05 * b && b < 1.05 * a) }'
}
