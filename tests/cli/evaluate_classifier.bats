#!/usr/bin/env bats
# The other ways to evaluate a classifier print on any number of ranks what one process prints.

load helpers

setup() {
    enter_folder
    small_data 60 11
    net_section batch=4 width=24 height=24 >net.cfg
    printf '%s\n' '[convolutional]' filters=4 size=3 stride=4 pad=1 activation=leaky \
        '[convolutional]' filters=10 size=1 stride=1 pad=1 activation=linear '[avgpool]' '[softmax]' groups=1 >>net.cfg
    "$DARKNET" partial net.cfg '' net.weights 99 >/dev/null 2>&1    # rand() is not seeded: the same weights in every run
}

# The plain program with one thread of OpenBLAS, as each rank has.
plain() {
    OPENBLAS_NUM_THREADS=1 timeout "$HANG_LIMIT" "$DARKNET" classifier "$1" small.data "${2:-net}.cfg" "${2:-net}.weights"
}

# answers <FILE: the lines that count, without what depends on the clock, and a warning that ranks leave away.
answers() {
    sed '/^Loaded: /d; /^Too many or too few labels/d; s/, [0-9.e-]* seconds//'
}

# same_on COMMAND RANKS...: standard output is that of the plain program.
same_on() {
    local command=$1 n
    shift
    plain "$command" 2>/dev/null | answers >one.txt
    [[ -s one.txt ]]
    for n in "$@"; do
        darknet_on "$n" classifier "$command" small.data net.cfg net.weights -cmn 2>many.err | answers >many.txt
        diff one.txt many.txt
    done
}

@test "valid10: the same lines on 1, 2, 3, 5 ranks and without -cmn" {
    same_on valid10 1 2 3 5
    [[ $(wc -l <one.txt) -eq 11 ]]
    grep -q '^10: top 1: 0\.[0-9]*, top 2: 0\.[0-9]*[1-9]' one.txt
}

@test "valid10: a list of several rounds, and one that is shorter than the ranks" {
    sed -n '1,150s|^data/||p' "$REPO/data/mnist/valid.list" >valid.list
    same_on valid10 2
    [[ $(wc -l <one.txt) -eq 150 ]]
    sed -i '3,$d' valid.list
    same_on valid10 3
}

@test "validfull and validmulti resize the network for each image: the same lines on 2, 3 ranks" {
    for command in validfull validmulti; do
        same_on $command 2 3
        [[ $(wc -l <one.txt) -eq 11 ]]
    done
}

# wide_images N [NAME]: so many wide images with stripes of random grey, of digits in turn, instead of the validation list.
# NAME is a part of their names.
wide_images() {
    local i
    for ((i = 0; i < $1; i++)); do
        LC_ALL=C awk -v s=$((i * 7919)) 'BEGIN {
            printf "P5\n84 28\n255\n"
            for (k = 0; k < 12; k++) { s = (s * 25173 + 13849) % 65536; grey[k] = 1 + int(s / 520) }
            for (k = 0; k < 84 * 28; k++) printf "%c", grey[int(k % 84 / 7)] }' >"digit-$((i % 10))-$i${2:-}.pgm"
        echo "digit-$((i % 10))-$i${2:-}.pgm"
    done >valid.list
}

@test "validcrop: the same shares, also over several parts" {
    mlp_cfg batch=20 width=24 height=24 min_crop=24 max_crop=28 max_batches=40 >net.cfg
    train_on 1 net.cfg
    mv out/net.weights .
    wide_images 50    # stretched, or cut out of the middle, which is not the same here
    same_on validcrop 1 2 3 5
    grep -q ', 50 images$' one.txt
    cp one.txt single.txt
    wide_images 50 -digit-3    # of two classes each, and either is right
    same_on validcrop 1 2 3
    run -1 diff one.txt single.txt
    sed -n '1,2003s|^data/||p' "$REPO/data/mnist/valid.list" >valid.list
    same_on validcrop 3
    [[ $(wc -l <one.txt) -eq 2 ]]
    grep -q ', 1002 images$' one.txt
}

@test "a standard output that takes no results is an error" {
    "$DARKNET" partial net.cfg '' net.weights 99 >/dev/null 2>&1
    status=0
    "$DARKNET" classifier valid small.data net.cfg net.weights -cmn >/dev/full 2>err.txt || status=$?
    cat err.txt
    [[ $status -eq 1 ]]
    grep '^cmn.* the standard output cannot be written: No space left on device: results are lost' err.txt
}

@test "bad input is one clear line" {
    mlp_cfg batch=4 >mlp.cfg
    "$DARKNET" partial mlp.cfg '' mlp.weights 99 >/dev/null 2>&1
    fails_clearly 'Cannot resize this type of layer' "$DARKNET" classifier validfull small.data mlp.cfg mlp.weights
    fails_clearly_on 2 'Cannot resize this type of layer' classifier validmulti small.data mlp.cfg mlp.weights -cmn
    sed -i 's|^mnist/.*|&/none.png|' valid.list
    fails_clearly_on 2 'none.png' classifier valid10 small.data net.cfg net.weights -cmn
    echo images/nothing.png >valid.list
    for command in valid10 validfull validmulti validcrop; do
        fails_clearly 'images/nothing.png' "$DARKNET" classifier $command small.data net.cfg net.weights
        fails_clearly_on 2 'images/nothing.png' classifier $command small.data net.cfg net.weights -cmn
    done
}
