#!/usr/bin/env bats
# `classifier valid -cmn` counts every image once, and counts what one process counts.

load helpers

setup() {
    enter_folder
    small_data 600 200
    mlp_cfg batch=20 max_batches=30 >mlp.cfg
    train_on 1 mlp.cfg
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

@test "lists that do not divide: the same counts on 1, 3, 5 ranks and without -cmn" {
    for n in 1 47 199; do
        shorten "$n"
        valid_on 1 >one.txt
        grep -q "^$n: top 1: " one.txt
        grep -q "^validation: $n images, " one.txt
        [[ $(sed -n "s/^$n: \(top 1.*\)/\1/p" one.txt | sed 's/ *$//') == "$(plain mlp)" ]]
        for ranks in 3 5; do
            valid_on "$ranks" >many.txt
            diff one.txt many.txt
        done
    done
}

@test "some are right and some wrong: the counts above can tell" {
    valid_on 2 >two.txt
    right=$(sed -n 's/^validation: 200 images, \([0-9]*\) right.*/\1/p' two.txt)
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
    train_on 2 bn.cfg
    darknet_on 1 classifier valid small.data bn.cfg out/bn.weights -cmn >one.txt 2>/dev/null
    darknet_on 3 classifier valid small.data bn.cfg out/bn.weights -cmn >three.txt 2>/dev/null
    diff one.txt three.txt
    [[ $(sed -n 's/^200: \(top 1.*\)/\1/p' one.txt | sed 's/ *$//') == "$(plain bn)" ]]
}

@test "[batchnorm] layers: each image by itself, and the file has the weights that were validated" {
    not_offered 'other commands'
    { net_section batch=20 max_batches=10 cmn_validate=1 cmn_report_every=10
      printf '%s\n' '[convolutional]' filters=4 size=3 stride=4 pad=1 activation=leaky '[batchnorm]' \
          '[connected]' output=10 activation=linear '[softmax]'; } >net.cfg
    darknet_on 2 classifier train small.data net.cfg -cmn -cmn_seed 7 >train.log 2>&1 || { cat train.log; return 1; }
    for ranks in 1 2 3; do
        darknet_on $ranks classifier valid small.data net.cfg out/net.weights -cmn 2>valid.err >out.txt
        tail -n 1 out.txt >"valid$ranks.txt"
    done
    cat valid?.txt
    cmp valid1.txt valid2.txt
    cmp valid1.txt valid3.txt
    right=$(jq 'last["validation/main/accuracy"] * 200 | round' out/net.json)
    grep -E "[^0-9]$right( |\$|,)" valid1.txt
}

@test "a cfg that says how to train over a slow link can be validated on one node" {
    valid_on 2 >plain.txt
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

@test "images that cannot be read, or have no label, end the job with a line" {
    sed -i 's|^mnist/.*|&/none.png|' valid.list
    fails_clearly_on 2 'none.png' classifier valid small.data mlp.cfg out/mlp.weights -cmn
    echo images/nothing.png >valid.list
    fails_clearly_on 2 'images/nothing.png' classifier valid small.data mlp.cfg out/mlp.weights -cmn
}

@test "weights of the first layers alone, and of another network, are no result" {
    head -c 20 "out/mlp$FINAL.weights" >head.weights
    cat "out/mlp$FINAL.weights" - >more.weights <<<'more than there are weights'
    for n in 1 2; do
        for weights in head more; do
            fails_clearly_on "$n" 'needs a file with the weights of all layers' classifier valid small.data mlp.cfg $weights.weights -cmn
        done
    done
}
