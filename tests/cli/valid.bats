#!/usr/bin/env bats
# `classifier valid -cmn` counts every image once, and counts what one process counts.

load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return 1
    [[ -f $REPO/data/mnist/train.list ]] || return 0 # setup skips
    small_data 600 200
    mlp_cfg batch=20 max_batches=30 >mlp.cfg
    train_on 1 mlp.cfg
}

setup() {
    [[ -f $REPO/data/mnist/train.list ]] || skip 'data/mnist is missing: make mnist'
    enter_folder
    cp -a "$BATS_FILE_TMPDIR"/. .
}

# shorten N: the validation list's first N images.
shorten() {
    sed -n "1,$1 s|^data/||p" "$REPO/data/mnist/valid.list" >valid.list
}

# valid_on N: what `classifier valid -cmn` prints on N ranks.
valid_on() {
    darknet_on "$1" classifier valid small.data "${2:-mlp.cfg}" out/mlp.weights -cmn 2>valid.err
}

# plain NET: top-1 and top-2 shares of the last line of the plain program.
plain() {
    "$DARKNET" classifier valid small.data "$1.cfg" "out/$1.weights" 2>/dev/null | tail -n 1 |
        sed 's/^[0-9]*: //; s/ *$//'
}

@test "lists that do not divide: the same counts on 1 and 3 ranks and without -cmn; some are right and some wrong" {
    for n in 1 199; do
        shorten "$n"
        valid_on 1 >one.txt
        grep -q "^$n: top 1: " one.txt
        grep -q "^validation: $n images, " one.txt
        [[ $(sed -n "s/^$n: \(top 1.*\)/\1/p" one.txt | sed 's/ *$//') == "$(plain mlp)" ]]
        valid_on 3 >many.txt
        diff one.txt many.txt
    done
    right=$(sed -n 's/^validation: 199 images, \([0-9]*\) right.*/\1/p' many.txt)
    [[ $right -gt 20 && $right -lt 195 ]]
}

@test "a batch that is larger than the list, and one of 1" {
    shorten 7
    valid_on 3 >a.txt
    mlp_cfg batch=1 >one.cfg
    valid_on 3 one.cfg >b.txt
    diff <(cut -d, -f1-3 a.txt) <(cut -d, -f1-3 b.txt)
}

@test "cmn_batch=global does not shrink what valid needs" {
    mlp_cfg batch=4 cmn_batch=global >four.cfg
    darknet_on 5 classifier valid small.data four.cfg out/mlp.weights -cmn >a.txt 2>/dev/null
    valid_on 1 four.cfg >b.txt
    diff a.txt b.txt
}

@test "batch normalisation: the rolling statistics decide, on any number of ranks" {
    conv_cfg batch=20 max_batches=10 | sed 's/^\[convolutional\]/&\nbatch_normalize=1/' >bn.cfg
    train_on 1 bn.cfg
    darknet_on 3 classifier valid small.data bn.cfg out/bn.weights -cmn >three.txt 2>/dev/null
    [[ $(sed -n 's/^200: \(top 1.*\)/\1/p' three.txt | sed 's/ *$//') == "$(plain bn)" ]]
}

@test "[batchnorm] layers: each image by itself, and the file has the weights that were validated" {
    not_offered 'other commands'
    { net_section batch=20 max_batches=10 cmn_validate=1 cmn_report_every=10
      printf '%s\n' '[convolutional]' filters=4 size=3 stride=4 pad=1 activation=leaky '[batchnorm]' \
          '[connected]' output=10 activation=linear '[softmax]'; } >net.cfg
    darknet_on 2 classifier train small.data net.cfg -cmn -cmn_seed 7 >train.log 2>&1 || { cat train.log; return 1; }
    for ranks in 1 3; do
        darknet_on $ranks classifier valid small.data net.cfg out/net.weights -cmn 2>valid.err >out.txt
        tail -n 1 out.txt >"valid$ranks.txt"
    done
    cat valid?.txt
    cmp valid1.txt valid3.txt
    right=$(jq 'last["validation/main/accuracy"] * 200 | round' out/net.json)
    grep -E "[^0-9]$right( |\$|,)" valid1.txt
}

@test "a cfg that says how to train over a slow link can be validated on one node" {
    valid_on 1 >plain.txt
    for keys in 'cmn_overlap=on' 'cmn_communicator=two_dimensional cmn_double_buffering=on cmn_compress=fp16'; do
        # shellcheck disable=SC2086
        mlp_cfg batch=20 max_batches=30 $keys >slow.cfg
        valid_on 2 slow.cfg >slow.txt
        diff plain.txt slow.txt
    done
}

@test "a standard output that takes no results is an error" {
    status=0
    "$DARKNET" classifier valid small.data mlp.cfg out/mlp.weights -cmn >/dev/full 2>err.txt || status=$?
    cat err.txt
    [[ $status -eq 1 ]]
    grep '^cmn.* the standard output cannot be written: No space left on device: results are lost' err.txt
}

@test "an image without a label ends the job with a line" {
    echo images/nothing.png >valid.list
    fails_clearly_on 2 'images/nothing.png' classifier valid small.data mlp.cfg out/mlp.weights -cmn
}

@test "weights of the first layers alone, and of another network, are no result" {
    head -c 20 "out/mlp$FINAL.weights" >head.weights
    cat "out/mlp$FINAL.weights" - >more.weights <<<'more than there are weights'
    fails_clearly_on 2 'needs a file with the weights of all layers' classifier valid small.data mlp.cfg head.weights -cmn
    fails_clearly_on 1 'needs a file with the weights of all layers' classifier valid small.data mlp.cfg more.weights -cmn
}
