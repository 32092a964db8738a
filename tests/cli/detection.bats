#!/usr/bin/env bats
# Digits on larger canvases, and a detector that learns to find them. `make demo-detection` shows the full-size result.

load helpers

CANVASES=$REPO/build/cpu/canvases

setup() {
    enter_folder
    [[ -x $CANVASES ]] || { echo "$CANVASES is missing: make tests"; return 1; }
}

# blocks NAME COUNT LABEL...: idx files of the set NAME: COUNT solid blocks of 12 x 20 pixels, with these labels in turn.
blocks() {
    local name=$1 count=$2 i row
    shift 2
    row="$(printf '\\0%.0s' {1..8})$(printf '\\377%.0s' {1..12})$(printf '\\0%.0s' {1..8})"
    mkdir -p idx
    {
        # shellcheck disable=SC2059  # octal bytes
        printf "\\0\\0\\10\\3\\0\\0\\0\\$(printf %o "$count")\\0\\0\\0\\34\\0\\0\\0\\34"
        for ((i = 0; i < count; i++)); do
            head -c $((4 * 28)) /dev/zero
            # shellcheck disable=SC2059
            printf "$row%.0s" {1..20}
            head -c $((4 * 28)) /dev/zero
        done
    } >"idx/$name-images-idx3-ubyte"
    {
        # shellcheck disable=SC2059
        printf "\\0\\0\\10\\1\\0\\0\\0\\$(printf %o "$count")"
        for ((i = 0; i < count; i++)); do
            # shellcheck disable=SC2059
            printf "\\$(printf %o "${@:i % $# + 1:1}")"
        done
    } >"idx/$name-labels-idx1-ubyte"
}

sets() {
    blocks train 10 0 1 2 3 4
    blocks t10k 5 5 6 7 8 9
}

@test "canvases: lists, images, and boxes within them; what is learned from is not what is asked for" {
    sets
    "$CANVASES" idx set some/where 60 40 3
    [[ $(wc -l <set/train.list) -eq 60 && $(wc -l <set/valid.list) -eq 40 ]]
    while IFS= read -r path; do
        file=set/${path#some/where/}
        label=${file/images/labels}
        [[ -s $file && -s ${label%.png}.txt ]]
    done < <(cat set/train.list set/valid.list)
    cat set/labels/train_*.txt >train.txt
    cat set/labels/valid_*.txt >valid.txt
    cut -d ' ' -f 1 train.txt | sort -u | paste -sd ' ' >train.classes
    cut -d ' ' -f 1 valid.txt | sort -u | paste -sd ' ' >valid.classes
    [[ $(<train.classes) == '0 1 2 3 4' && $(<valid.classes) == '5 6 7 8 9' ]]
    # A block of 12 x 20 stays as high as 5/3 of its width, but for a pixel at each side; nothing sticks out.
    awk 'NF != 5 || $2 - $4 / 2 < -1e-6 || $2 + $4 / 2 > 1 + 1e-6 || $3 - $5 / 2 < -1e-6 || $3 + $5 / 2 > 1 + 1e-6 { bad = 1; print }
        { d = 96 * ($5 - $4 * 5 / 3); if (d > 4 || d < -4) { bad = 1; print "shape:", $0 } }
        END { exit bad || NR < 100 }' train.txt valid.txt
}

@test "canvases: the same seed draws the same files, another one others" {
    sets
    for set in 'one 3' 'two 3' 'three 4'; do
        read -r name seed <<<"$set"
        "$CANVASES" idx "$name" here 12 8 "$seed"
    done
    diff -r one two
    run -1 cmp one/images/train_00000.png three/images/train_00000.png
    run -1 cmp one/images/train_00000.png one/images/valid_00000.png
    # Fewer canvases are the first of more.
    "$CANVASES" idx few here 5 2 3
    cmp one/images/train_00004.png few/images/train_00004.png
    cmp one/labels/valid_00001.txt few/labels/valid_00001.txt
}

@test "canvases of MNIST are the same bytes on every machine" {
    [[ -f $REPO/data/mnist-idx/train-images-idx3-ubyte ]] || skip 'data/mnist-idx is missing: make mnist'
    [[ $(<"$REPO/data/mnist/.source") == MNIST ]] || skip 'data/mnist-idx is not MNIST'
    "$CANVASES" "$REPO/data/mnist-idx" set data/detection 30 10 1
    sum=$(cd set && find . -type f | LC_ALL=C sort | xargs cat | sha256sum)
    echo "$sum"
    [[ ${sum%% *} == 3976739e50d909aaf4f2dc1ac55f235e87481e5050fed79345c3b611a60d6404 ]]
}

@test "canvases: bad input is one clear line" {
    sets
    fails_clearly '^canvases: TRAIN: 0; a number from 1 to 99999 is needed$' "$CANVASES" idx set here 0 10 1
    fails_clearly '^canvases: VALID: ten; ' "$CANVASES" idx set here 10 ten 1
    fails_clearly '^canvases: SEED: -1; ' "$CANVASES" idx set here 10 10 -1
    fails_clearly '^usage: .*canvases ' "$CANVASES" idx set here 10 10
    fails_clearly '^canvases: none/train-images-idx3-ubyte: No such file' "$CANVASES" none set1 here 10 10 1
    fails_clearly '^canvases: set1: File exists$' "$CANVASES" idx set1 here 10 10 1
    : >idx/t10k-labels-idx1-ubyte
    fails_clearly '^canvases: idx/t10k-labels-idx1-ubyte: not an idx file of bytes with 1 dimension$' "$CANVASES" idx set2 here 10 10 1
    blocks t10k 3 7 12
    fails_clearly "^canvases: idx: item 1 of the set 't10k' has the label 12; labels go from 0 to 9$" "$CANVASES" idx set3 here 10 10 1
    head -c $((16 + 28 * 28)) /dev/zero >blank
    printf '\0\0\10\3\0\0\0\1\0\0\0\34\0\0\0\34' | dd of=blank conv=notrunc status=none
    printf '\0\0\10\1\0\0\0\1\0' >idx/t10k-labels-idx1-ubyte
    mv blank idx/t10k-images-idx3-ubyte
    fails_clearly "^canvases: idx: the images of the set 't10k' are blank$" "$CANVASES" idx set4 here 10 10 1
}

@test "a detector learns on 2 ranks: the loss falls, digits are found, a picture shows them" {
    [[ -z $SAN ]] || skip 'too slow with sanitizers'
    [[ -f $REPO/data/mnist-idx/train-images-idx3-ubyte ]] || skip 'data/mnist-idx is missing: make mnist'
    "$CANVASES" "$REPO/data/mnist-idx" set set 800 100 1
    # The network of the demo, but which digit it is does not matter, and images are smaller: that takes far fewer steps to learn.
    sed -i 's/^[0-9]/0/' set/labels/*.txt
    echo digit >names
    printf '%s\n' classes=1 train=set/train.list valid=set/valid.list names=names backup=out >small.data
    sed -e 's/^batch=.*/batch=8/; s/^max_batches=.*/max_batches=240/; s/^burn_in=.*/burn_in=20/; s/^steps=.*/steps=165,215/' \
        -e 's/^learning_rate=.*/learning_rate=0.004/; s/^filters=60/filters=24/; s/^classes=.*/classes=1/; s/^jitter=.*/jitter=0/' \
        -e 's/^\(width\|height\)=.*/\1=64/; s/^anchors=.*/anchors=7,16, 13,15, 15,22, 23,25/' \
        "$REPO/cfg/digits_yolo.cfg" >small.cfg
    # shellcheck disable=SC2154  # mpiexec: helpers.bash
    timeout --kill-after=5 "$HANG_LIMIT" "${mpiexec[@]}" -n 2 "$DARKNET" detector train small.data small.cfg -cmn -cmn_seed 1 \
        -cmn_validate 0 -cmn_report_every 40 >train.log 2>&1 || { tail train.log; return 1; }
    jq -c 'map(.["main/loss"])' out/small.json
    jq -e 'map(.["main/loss"]) | .[0] > 20 and .[-1] < 6' out/small.json
    # Measured with three seeds: 0.80 to 0.81.
    darknet_on 2 detector map small.data small.cfg out/small_final.weights -json map.json -cmn >map.txt
    tail -n 2 map.txt
    awk '$1 == "mAP@0.5" && $3 >= 0.6 { good = 1 } END { exit !good }' map.txt

    letters=$REPO/build/darknet/data/labels
    "$BUILD/sheet" small.data small.cfg out/small_final.weights "$letters" 6 sheet >sheet.log 2>&1
    # PNG's header: 4 columns and 2 rows of 288 pixels, with lines of 4 between.
    [[ $(od -A n -t x1 -N 24 sheet.png | tr -d ' \n') == 89504e470d0a1a0a0000000d49484452000004940000024c ]]
    fails_clearly '^usage: .*sheet ' "$BUILD/sheet" small.data small.cfg out/small_final.weights "$letters" 0 sheet
    fails_clearly '^set/valid.list holds 100 images, not 101$' \
        "$BUILD/sheet" small.data small.cfg out/small_final.weights "$letters" 101 sheet
}
