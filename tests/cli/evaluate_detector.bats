#!/usr/bin/env bats
# The detector's evaluators: on any number of ranks the numbers and files of one process, and those that the definition gives.

load helpers

IMAGES=13

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return 1
    make_images
    yolo_cfg >yolo.cfg
    random_weights yolo
}

setup() {
    enter_folder
    cp -a "$BATS_FILE_TMPDIR"/. .
}

# Images of noise in several shapes (stb reads PNM under any name), up to three boxes each in three classes, and boxes.data.
make_images() {
    mkdir images labels
    LC_ALL=C awk -v images=$IMAGES 'function r(n) { s = (s * 25173 + 13849) % 65536; return int(s / 65536 * n) }
        BEGIN { for (i = 1; i <= images; i++) {
            image = "images/" i ".jpg"
            label = "labels/" i ".txt"
            w = 20 + i * 7 % 30
            h = 20 + i * 11 % 30
            print image >"list"
            print i, w, h >"sizes"
            printf "P6\n%d %d\n255\n", w, h >image
            s = i
            for (k = 0; k < 3 * w * h; k++) { s = (s * 1103 + 12345) % 65536; printf "%c", 1 + int(s / 520) >image }
            printf "" >label
            s = i * 7919
            for (n = r(4); n > 0; n--)
                printf "%d %.3f %.3f %.3f %.3f\n", r(3), .3 + r(40) / 100, .3 + r(40) / 100, .4 + r(40) / 100, .4 + r(40) / 100 >label
            close(image)
            close(label) } }'
    printf '%s\n' red green blue >names
    data
}

# data KEY=VALUE...: boxes.data; later keys replace earlier ones.
data() {
    printf '%s\n' "$@" classes=3 train=list valid=list names=names backup=out | awk -F = '!had[$1]++' >boxes.data
}

# body FILTERS: three small layers; the strides make 16x8 cells of 64x32 pixels.
body() {
    printf '%s\n' '[convolutional]' "batch_normalize=${BN:-0}" filters=8 size=3 stride=2 pad=1 activation=leaky \
        '[convolutional]' filters=16 size=3 stride=2 pad=1 activation=leaky \
        '[convolutional]' "filters=$1" size=1 stride=1 pad=1 activation=linear
}

# yolo_cfg >FILE, with CLASSES and BN=1 for batch normalisation.
yolo_cfg() {
    net_section batch=2 width=64 height=32 channels=3 learning_rate=0.002 max_batches=14
    body $((2 * (5 + ${CLASSES:-3})))
    printf '%s\n' '[yolo]' mask=0,1 'anchors=8,8, 20,20' "classes=${CLASSES:-3}" num=2 jitter=.1 ignore_thresh=.7 truth_thresh=1 \
        random=0
}

region_cfg() {
    net_section batch=1 width=64 height=64 channels=3
    body $((2 * (5 + 3)))
    printf '%s\n' '[region]' 'anchors=1,1, 3,3' classes=3 num=2 coords=4 softmax=1 bias_match=1 jitter=.1
}

detection_cfg() {
    net_section batch=1 width=48 height=32 channels=3
    body 8
    printf '%s\n' '[connected]' output=$((9 * (3 + 2 * 5))) activation=linear \
        '[detection]' classes=3 coords=4 rescore=1 side=3 num=2 softmax=0 sqrt=1 jitter=.2
}

# Random weights, the same in every run: rand() is not seeded here.
random_weights() {
    "$DARKNET" partial "$1.cfg" '' "$1.weights" 99 >/dev/null 2>&1
}

# The plain program with one thread of OpenBLAS, as each rank has: several add in another order.
plain() {
    OPENBLAS_NUM_THREADS=1 timeout "$HANG_LIMIT" "$DARKNET" "$@"
}

# map_everywhere NET RANKS...: text and JSON of the plain program, and the same on so many ranks; OPTIONS for both.
OPTIONS=()
map_everywhere() {
    local net=$1 n
    shift
    plain detector map boxes.data "$net.cfg" "$net.weights" "${OPTIONS[@]}" -json one.json >one.txt 2>one.err
    for n in "$@"; do
        darknet_on "$n" detector map boxes.data "$net.cfg" "$net.weights" "${OPTIONS[@]}" -json many.json -cmn \
            >many.txt 2>many.err
        diff one.txt many.txt
        cmp one.json many.json
    done
}

# number KEY <FILE: the first number of that key in a JSON file.
number() {
    sed -n "s/^.*\"$1\":[[:space:]]*\([-0-9.e]*\).*/\1/p" | sed -n 1p
}

@test "map: the same table and file on 1, 3, 5 ranks and without -cmn" {
    map_everywhere yolo 1 3
    grep -q "^$IMAGES images, $(cat labels/*.txt | wc -l) true boxes, " one.txt
    [[ $(number found <one.json) -gt 1000 ]]
    # The same picture several times, with boxes and without: equal scores, of which the image decides.
    for i in 14 15 16 17 18; do
        cp images/1.jpg images/$i.jpg
        if ((i % 2)); then cp labels/1.txt labels/$i.txt; else : >labels/$i.txt; fi
        echo images/$i.jpg
    done >same
    data valid=same
    map_everywhere yolo 3
    sed -n 4,6p list >three
    data valid=three
    map_everywhere yolo 5
}

@test "map: [region] and [detection], 11 points, other thresholds" {
    OPTIONS=(-points 11 -iou_thresh 0.05 -thresh 0.1)
    for net in region detection; do
        ${net}_cfg >$net.cfg
        random_weights $net
        map_everywhere $net 2
        grep -q 'AP is the mean at 11 points' one.txt
        ap=$(sed -n 's/^mAP@0.05 = //p' one.txt)
        awk -v ap="$ap" 'BEGIN { exit !(ap > 0.001) }'
        [[ $(number confidence_threshold <one.json) == 0.1* && $(number iou_threshold <one.json) == 0.05 ]]
    done
}

# A box of each class becomes true that `detector valid` has found, every fourth of the best ones, where it lies in its image.
# Boxes of the same class overlap it by less than 0.45 then, so which one is right is beyond doubt.
find_truth() {
    local class=0 name i
    for ((i = 1; i <= IMAGES; i++)); do
        : >labels/$i.txt
    done
    while read -r name; do
        sort -k 2,2gr "results/comp4_det_test_$name.txt" | awk -v c=$class '
            FILENAME == "sizes" { w[$1] = $2; h[$1] = $3; next }
            $3 > 1.5 && $4 > 1.5 && ++n % 4 == 1 && n < 150 && $5 < w[$1] && $6 < h[$1] {
                printf "%d %.7f %.7f %.7f %.7f\n", c, (($3 + $5) / 2 - 1) / w[$1], (($4 + $6) / 2 - 1) / h[$1],
                    ($5 - $3) / w[$1], ($6 - $4) / h[$1] >>("labels/" $1 ".txt") }' sizes -
        class=$((class + 1))
    done <names
}

# judged CLASS NAME: score of each box that `detector valid` has found, and 1 where it is right, 0 where it is wrong.
judged() {
    sort -s -k 2,2gr "results/comp4_det_test_$2.txt" | awk -v class="$1" '
        function common(a, b, c, d) { a = a > c ? a : c; b = b < d ? b : d; return b > a ? b - a : 0 }
        FILENAME == "sizes" { w[$1] = $2; h[$1] = $3; next }
        FILENAME ~ /^labels/ {
            if ($1 != class) next
            i = FILENAME
            gsub(/[^0-9]/, "", i)
            n = ++boxes[i]
            box[i, n, 3] = ($2 - $4 / 2) * w[i]
            box[i, n, 4] = ($3 - $5 / 2) * h[i]
            box[i, n, 5] = ($2 + $4 / 2) * w[i]
            box[i, n, 6] = ($3 + $5 / 2) * h[i]
            next
        }
        {
            best = 0
            for (n = 1; n <= boxes[$1]; n++) {
                c = common($3 - 1, $5 - 1, box[$1, n, 3], box[$1, n, 5]) * common($4 - 1, $6 - 1, box[$1, n, 4], box[$1, n, 6])
                u = ($5 - $3) * ($6 - $4) + (box[$1, n, 5] - box[$1, n, 3]) * (box[$1, n, 6] - box[$1, n, 4]) - c
                if (!taken[$1, n] && c / u > best) { best = c / u; which = n }
            }
            if (best >= .5) taken[$1, which] = 1
            print $2, (best >= .5)
        }' sizes labels/*.txt -
}

# ap CLASS: average precision of what `judged` says, in this order, as docs/use/evaluation.md defines it.
ap() {
    awk -v all="$(cat labels/*.txt | awk -v class="$1" '$1 == class' | wc -l)" '
        { right += $2; hits[NR] = right; precision[NR] = right / NR }
        END {
            for (k = 1; k <= all; k++) {
                most = 0
                for (i = NR; i > 0 && hits[i] >= k; i--) if (precision[i] > most) most = precision[i]
                sum += most
            }
            print sum / all
        }'
}

@test "map: what the definition gives for the boxes that detector valid writes" {
    mkdir results
    plain detector valid boxes.data yolo.cfg yolo.weights >/dev/null 2>&1
    find_truth
    [[ $(cat labels/*.txt | wc -l) -ge 12 ]]
    darknet_on 3 detector map boxes.data yolo.cfg yolo.weights -cmn >map.txt 2>/dev/null
    cat map.txt
    class=0
    # The files round scores, so the order of some is not known: the right ones may all come last or first.
    while read -r name; do
        judged $class "$name" >judged.txt
        least=$(sort -k 1,1gr -k 2,2n judged.txt | ap $class)
        most=$(sort -k 1,1gr -k 2,2nr judged.txt | ap $class)
        printed=$(awk -v name="$name" '$1 == name { print $3 }' map.txt)
        echo "$name: $printed, from the definition $least to $most"
        awk -v a="$printed" -v least="$least" -v most="$most" 'BEGIN {
            exit !(a > .03 && a > least - .0001 && a < most + .0001 && most - least < .1 * most) }'
        class=$((class + 1))
    done <names
}

# Four cells, whose boxes are as large as the image, and of class 0: three quarters of each side lie in it.
@test "map: boxes are cut off at the image's edges" {
    net_section batch=1 width=16 height=16 channels=3 >edges.cfg
    printf '%s\n' '[convolutional]' filters=8 size=8 stride=8 pad=0 activation=linear \
        '[yolo]' mask=0 'anchors=16,16' classes=3 num=1 >>edges.cfg
    {
        printf '\0\0\0\0\2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'    # version 0.2.0, no image seen
        head -c 16 /dev/zero                                       # biases: 0 for place and size,
        printf '\0\0\310B\0\0\310B\0\0\310\302\0\0\310\302'    # and 100, 100, -100, -100
        head -c $((8 * 3 * 64 * 4)) /dev/zero
    } >edges.weights
    { printf 'P6\n16 16\n255\n'; head -c 768 /dev/zero; } >images/edges.jpg
    printf '0 %s .75 .75\n' '.375 .375' '.625 .375' '.375 .625' '.625 .625' >labels/edges.txt
    echo images/edges.jpg >edges
    data valid=edges
    plain detector map boxes.data edges.cfg edges.weights -iou_thresh 0.99 >map.txt
    cat map.txt
    grep -qx 'mAP@0.99 = 1.0000' map.txt
}

# valid_everywhere COMMAND NET RANKS...: files of the plain program in `one`, and the same on so many ranks.
valid_everywhere() {
    local command=$1 net=$2 n
    shift 2
    rm -rf one results
    mkdir results
    plain detector "$command" boxes.data "$net.cfg" "$net.weights" -out found >/dev/null 2>one.err
    mv results one
    for n in "$@"; do
        mkdir results
        darknet_on "$n" detector "$command" boxes.data "$net.cfg" "$net.weights" -out found -cmn >/dev/null 2>many.err
        diff -rq one results
        rm -r results
    done
}

@test "valid: VOC's files on 1 and 3 ranks are those of one process" {
    valid_everywhere valid yolo 1 3
    [[ $(cat one/foundred.txt one/foundgreen.txt one/foundblue.txt | wc -l) -gt 1000 ]]
    [[ $(cut -d ' ' -f 1 one/foundred.txt | uniq | wc -l) -eq $IMAGES ]]
    head -n 1 list >one.list
    data valid=one.list
    valid_everywhere valid yolo 3
}

# With 50 filters of 3x3 OpenBLAS adds 450 products in another order when it has another number of threads.
@test "valid: one rank, which has all cores, writes what two write" {
    yolo_cfg | awk '/^filters=8$/ { $0 = "filters=50" } /^stride=2$/ && ++n == 2 { $0 = "stride=1" } { print }' >wide.cfg
    random_weights wide
    unset OPENBLAS_NUM_THREADS
    valid_everywhere valid wide 1 2
}

@test "valid: COCO's file over several rounds, and ImageNet's" {
    ln -s . a_folder
    for ((i = 0; i < 11; i++)); do sed 's|^|a_folder/|' list; done >long # a rank takes 64 images in a round
    data valid=long eval=coco
    sed 's/^width=64/width=32/; s/^height=32/height=16/' yolo.cfg >small.cfg
    cp yolo.weights small.weights
    valid_everywhere valid small 2
    jq -e '[.[].image_id] | unique | length > 1' one/found.json
    [[ $(head -n 1 one/found.json) == '[' ]]
    [[ $(tail -n 1 one/found.json) == ']' ]]
    CLASSES=200 yolo_cfg | sed 's/^width=64/width=16/; s/^height=32/height=16/' >many.cfg
    random_weights many
    data eval=imagenet classes=200
    valid_everywhere valid many 2
    [[ $(cut -d ' ' -f 1 one/found.txt | uniq | tr '\n' ' ') == "$(seq -s ' ' 1 $IMAGES) " ]]
}

@test "valid: COCO's file without a single box is JSON, too" {
    net_section batch=1 width=16 height=16 channels=3 >none.cfg
    printf '%s\n' '[convolutional]' filters=8 size=1 stride=1 pad=1 activation=linear \
        '[yolo]' mask=0 'anchors=8,8' classes=3 num=1 >>none.cfg
    {
        printf '\0\0\0\0\2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'    # version 0.2.0, no image seen
        for ((i = 0; i < 8; i++)); do
            printf '\0\0\310\302'    # biases of -100
        done
        head -c $((8 * 3 * 4)) /dev/zero
    } >none.weights
    data eval=coco
    valid_everywhere valid none 2
    [[ $(tr -d '\n' <one/found.json) == '[]' ]]
}

@test "recall: the same lines on 3 ranks and without -cmn" {
    plain detector recall boxes.data yolo.cfg yolo.weights 2>&1 >/dev/null | grep RPs >one.txt
    [[ $(wc -l <one.txt) -eq $IMAGES ]]
    darknet_on 3 detector recall boxes.data yolo.cfg yolo.weights -cmn 2>&1 >/dev/null | grep RPs >many.txt
    diff one.txt many.txt
}

# trained_with KEY=VALUE...: trains on 2 ranks without and with validation, into 0.weights and 1.weights.
trained_with() {
    local every pair
    for every in 0 1; do
        BN=1 yolo_cfg >train.cfg
        for pair in "$@"; do
            sed -i "s/^${pair%%=*}=.*/$pair/" train.cfg
        done
        darknet_on 2 detector train boxes.data train.cfg -cmn -cmn_seed 7 -cmn_validate $every >train.log 2>&1 ||
            { tail train.log; return 1; }
        mv out/train_final.weights $every.weights
    done
}

@test "validation changes no bit of a training, and its mAP is that of detector map" {
    trained_with max_batches=150 learning_rate=0.0005
    cmp 0.weights 1.weights
    [[ $(grep -c '"validation/main/map":' out/train.json) -gt 40 ]]
    plain detector map boxes.data train.cfg 1.weights -json map.json >/dev/null 2>&1
    for key in map:map50 map50_95:map50_95; do
        trained=$(tail -n 2 out/train.json | number "validation\/main\/${key%:*}")
        mapped=$(number "${key#*:}" <map.json)
        echo "${key%:*}: $trained in training, $mapped afterwards"
        awk -v a="$trained" -v b="$mapped" 'BEGIN { d = a - b; exit !(b > 0 && d * d <= 1e-12 * b * b) }'
    done
}

@test "validation changes no bit of a training with random=1, which is at another size by then" {
    head -n 4 list >four # a step of two ranks is an epoch
    data train=four valid=four
    trained_with max_batches=3 random=1 learning_rate=0.0005
    cmp 0.weights 1.weights
    grep -q '"validation/main/map":' out/train.json
    grep -q '^Resizing' train.log
}

@test "yolo train validates, too" {
    detection_cfg | sed 's/^classes=.*/classes=20/; s/^output=.*/output=270/; s/^max_batches=.*/max_batches=16/' >train.cfg
    sed 's/^classes=.*/classes=20/' boxes.data >twenty.data
    darknet_on 2 yolo train train.cfg -data twenty.data -cmn -cmn_seed 7 >train.log 2>&1 || { tail train.log; false; }
    [[ $(grep -c '"validation/main/map":' out/train.json) -ge 2 ]]
}

@test "images without a label file are said, and count as images without boxes" {
    : >labels/2.txt
    plain detector map boxes.data yolo.cfg yolo.weights >one.txt 2>/dev/null
    rm labels/2.txt
    darknet_on 2 detector map boxes.data yolo.cfg yolo.weights -cmn >many.txt 2>many.err
    diff one.txt many.txt
    grep -q "^1 of $IMAGES images have no label file" many.err
}

@test "a training says how many images of its valid list have no label file, and begins with none no training" {
    mkdir elsewhere
    cp images/1.jpg images/2.jpg elsewhere/
    ls elsewhere/*.jpg >bare
    cat list bare >some
    data valid=some
    sed 's/^max_batches=.*/max_batches=2/' yolo.cfg >short.cfg
    darknet_on 2 detector train boxes.data short.cfg -cmn >train.log 2>&1
    [[ $(grep -cx "cmn: validation: 2 of $((IMAGES + 2)) images have no label file: they count as images without boxes" train.log) -eq 1 ]]
    data valid=bare
    rm -rf out
    fails_clearly_on 2 'validation: no image has a true box, so there is no mAP: do the label files lie where Darknet looks' \
        detector train boxes.data short.cfg -cmn
    [[ ! -e out/short.weights && ! -e out/short.json ]]
}

# The network's classes in another order: a map that leads there gives what the labels' own classes give.
@test "map= in the last layer holds for an evaluation, too" {
    plain detector map boxes.data yolo.cfg yolo.weights >plain.txt
    awk 'BEGIN { n[0] = 2; n[1] = 3; n[2] = 0 } FILENAME ~ /labels/ { $1 = n[$1]; print >FILENAME ".new" }' labels/*.txt
    for i in labels/*.txt; do [[ ! -f $i.new ]] || mv "$i.new" "$i"; done
    printf '%s\n' 2 1 0 1 >map
    sed 's/^\[yolo\]/&\nmap=map/' yolo.cfg >mapped.cfg
    cp yolo.weights mapped.weights
    map_everywhere mapped 2
    diff plain.txt one.txt
    printf '%s\n' 2 1 0 >map
    fails_clearly_on 1 'txt:[0-9]+: class 3, and with classes=3 they are 0 to 2$' detector map boxes.data mapped.cfg mapped.weights -cmn
    printf '%s\n' 9 1 0 1 >map
    fails_clearly_on 1 'map:1: 9 is none of the classes 0 to 2 of \[yolo\] in mapped.cfg$' \
        detector map boxes.data mapped.cfg mapped.weights -cmn
}

@test "no weights, weights of another network or that are no numbers are errors" {
    needs='detector map needs a file with the weights of all layers of this cfg, and no more'
    fails_clearly 'WEIGHTS is missing' "$DARKNET" detector map boxes.data yolo.cfg
    { cat yolo.weights && printf '%08d' 0; } >long.weights
    fails_clearly_on 1 "$needs" detector map boxes.data yolo.cfg long.weights -cmn
    # Of the first layer alone: a start for a training.
    "$DARKNET" partial yolo.cfg yolo.weights first.weights 1 >/dev/null 2>&1
    fails_clearly_on 1 "$needs" detector map boxes.data yolo.cfg first.weights -cmn
    head -c -4 yolo.weights >nan.weights
    printf '\x00\x00\xc0\x7f' >>nan.weights
    for verb in map valid recall; do
        fails_clearly_on 2 'weights of layer [0-9]+ \(convolutional\): nan in the file of weights, which is worthless' \
            detector "$verb" boxes.data yolo.cfg nan.weights -cmn
    done
    # Numbers, with which it computes none.
    head -c -400 yolo.weights >large.weights
    for _ in {1..100}; do printf '\xff\xff\x7f\x7f'; done >>large.weights
    fails_clearly_on 2 "outputs are no numbers for $IMAGES of $IMAGES images: its weights are worth nothing" \
        detector map boxes.data yolo.cfg large.weights -cmn
}

@test "map -json replaces its own files alone" {
    echo '{"mine": 1}' >mine.json
    fails_clearly_on 1 'mine.json: what is there is no table of detector map, and would be lost' \
        detector map boxes.data yolo.cfg yolo.weights -json mine.json -cmn
    [[ $(<mine.json) == '{"mine": 1}' ]]
    for _ in 1 2; do
        plain detector map boxes.data yolo.cfg yolo.weights -json table.json >/dev/null 2>&1
        jq -e '.map50 >= 0' table.json
    done
    plain detector map boxes.data yolo.cfg yolo.weights -json /dev/stdout 2>/dev/null | grep '"map50":'
}

@test "bad input is one clear line" {
    fails_clearly_on 1 'WEIGHTS is missing, usage: .*detector map DATA CFG WEIGHTS' detector map boxes.data yolo.cfg -cmn
    fails_clearly_on 1 'points 5: it must be 0 \(all\), 11 or 101' detector map boxes.data yolo.cfg yolo.weights -points 5 -cmn
    fails_clearly_on 1 'iou_thresh 1.5: it must be above 0' detector map boxes.data yolo.cfg yolo.weights -iou_thresh 1.5 -cmn
    fails_clearly_on 1 'no/such.json: No such file' detector map boxes.data yolo.cfg yolo.weights -json no/such.json -cmn
    fails_clearly_on 1 'results/comp4.*No such file' detector valid boxes.data yolo.cfg yolo.weights -cmn
    mkdir results
    data eval=imagenet
    fails_clearly_on 1 'eval=imagenet in the .data file is for at least 200 classes, and the network has 3' \
        detector valid boxes.data yolo.cfg yolo.weights -cmn
    head -n 2 names >two
    data names=two
    fails_clearly_on 1 'names has 2 of them for classes=3' detector map boxes.data yolo.cfg yolo.weights -cmn
    fails_clearly_on 1 'two has 2 names for classes=3' detector valid boxes.data yolo.cfg yolo.weights -cmn
    # What an earlier evaluation has found stays.
    echo earlier >results/comp4_det_test_x.txt
    printf '%s\n' x y x >twice
    data names=twice
    fails_clearly_on 2 'results/comp4_det_test_x.txt is the file of two classes, whose names are the same' \
        detector valid boxes.data yolo.cfg yolo.weights -cmn
    [[ $(ls -A results) == comp4_det_test_x.txt && $(<results/comp4_det_test_x.txt) == earlier ]]
    data
    { net_section batch=1 width=16 height=16 channels=3; body 4; } >plain.cfg
    "$DARKNET" partial plain.cfg '' plain.weights 99 >/dev/null 2>&1
    fails_clearly_on 1 'finds no boxes: its last layer must be' detector map boxes.data plain.cfg plain.weights -cmn
    fails_clearly_on 1 'this network finds no boxes' detector recall boxes.data plain.cfg plain.weights -cmn
    echo '3 .5 .5 .1 .1' >>labels/7.txt
    fails_clearly_on 1 'labels/7.txt:[0-9]+: class 3, and with classes=3 they are 0 to 2' \
        detector map boxes.data yolo.cfg yolo.weights -cmn
    for ((i = 1; i <= IMAGES; i++)); do
        : >labels/$i.txt
    done
    fails_clearly_on 1 'no image has a true box, so there is no mAP' detector map boxes.data yolo.cfg yolo.weights -cmn
    echo images/none.jpg >>list
    fails_clearly_on 1 'images/none.jpg' detector map boxes.data yolo.cfg yolo.weights -cmn
    for driver in yolo coco; do
        fails_clearly_on 1 "$driver valid: its list is written into the program: use detector map" \
            $driver valid yolo.cfg yolo.weights -cmn
    done
}

@test "a map of classes that does not fit its labels or its layer, in training" {
    region_cfg >region.cfg
    mkdir out
    for net in yolo region; do
        sed "s/^\\[$net\\]/&\nmap=map/" $net.cfg >mapped.cfg
        seq 0 2 >map
        plain detector train boxes.data mapped.cfg >said 2>&1
        for numbers in '0' '3 -1 70000' ''; do
            { grep -o '[-0-9]*' <<<"$numbers" || true; } >map
            fails_clearly_on 1 'txt:[0-9]+: class [012], and with classes=3 they are 0 to 2, to which its map= does not lead|map: the list is empty|map:1: 3 is none of the classes 0 to 2' detector train boxes.data mapped.cfg -cmn
        done
    done
}
