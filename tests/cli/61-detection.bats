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
    run ! cmp one/images/train_00000.png three/images/train_00000.png
    run ! cmp one/images/train_00000.png one/images/valid_00000.png
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
