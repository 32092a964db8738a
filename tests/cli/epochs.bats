#!/usr/bin/env bats
# What an epoch holds, and what is reported of it.

load helpers

setup() {
    enter_folder
    small_data 40 20
}

rows() {
    jq -c "$1" out/mlp.json
}

@test "random=1: each image is trained with once an epoch, though a prefetched batch is thrown away" {
    not_offered 'random=1 of a classifier'
    command -v strace >/dev/null || skip 'strace is not installed'
    [[ -z $SAN ]] || skip 'strace and sanitizers do not go together'
    net_section batch=10 random=1 width=32 height=32 cmn_epochs=1 max_batches=100 >random.cfg
    printf '%s\n' '[convolutional]' 'filters=4' 'size=3' 'stride=4' 'pad=1' 'activation=relu' \
        '[convolutional]' 'filters=10' 'size=1' 'stride=1' 'activation=linear' '[avgpool]' '[softmax]' >>random.cfg
    timeout "$HANG_LIMIT" strace -f --seccomp-bpf -qq -e trace=openat -o trace "$DARKNET" classifier train small.data random.cfg -cmn -cmn_cache_mb 0 \
        -cmn_validate 0 >train.log 2>&1
    grep -o 'mnist/train/[^"]*png' trace >loads
    # The first ten are thrown away when the network is resized, four batches make the epoch, and the last ten are the
    # prefetch that the end leaves unused.
    sed -n '11,50p' loads | sort -u >trained
    echo "$(wc -l <loads) loads, $(wc -l <trained) different images in the four batches"
    (($(wc -l <loads) == 60))
    (($(wc -l <trained) == 40))
}

@test "cmn_validate=5: steps that are longer than an epoch skip no validation" {
    mlp_cfg batch=16 max_batches=14 >mlp.cfg
    darknet_on 3 classifier train small.data mlp.cfg -cmn -cmn_validate 5 >train.log 2>&1
    # 48 of 40 images a step: epoch 5 is passed in step 5, which ends at 6.0; 10 in step 9, 15 in step 13; 14 is the last.
    run -0 rows '[.[] | select(has("validation/main/loss")) | .iteration]'
    echo "$output"
    [[ $output == '[5,9,13,14]' ]]
}

@test "a loss that diverged is shown and logged, not left out" {
    mlp_cfg batch=40 max_batches=4 learning_rate=1e25 >mlp.cfg
    darknet_on 1 classifier train small.data mlp.cfg -cmn -cmn_nonfinite ignore >train.log 2>&1
    grep -E '^4\.00 +4 +-?nan +-?nan ' train.log
    [[ $(rows 'last | has("validation/main/loss") and has("validation/main/accuracy") and has("main/loss")') == true ]]
}

@test "a resumed training keeps the rows of its JSON log; nothing left to train is said; -clear starts counting anew" {
    mlp_cfg batch=40 max_batches=3 >mlp.cfg
    darknet_on 1 classifier train small.data mlp.cfg -cmn -cmn_report_every 1 >train.log 2>&1
    [[ $(rows '[.[].iteration]') == '[1,2,3]' ]]
    mlp_cfg batch=40 max_batches=5 >mlp.cfg
    darknet_on 1 classifier train small.data mlp.cfg "out/mlp$FINAL.weights" -cmn -cmn_report_every 1 >train.log 2>&1
    [[ $(rows '[.[].iteration]') == '[1,2,3,4,5]' ]]
    darknet_on 1 classifier train small.data mlp.cfg "out/mlp$FINAL.weights" -cmn >train.log 2>&1
    (($(grep -c 'cmn: nothing to train: iteration 5 of 5 is reached already' train.log) == 1))
    darknet_on 1 classifier train small.data mlp.cfg "out/mlp$FINAL.weights" -clear -cmn -cmn_report_every 2 >train.log 2>&1
    [[ $(rows '[.[].iteration]') == '[1,2,3,4,5]' && $(seen "out/mlp$FINAL.weights") -eq 200 ]]
    run -1 grep 'nothing to train' train.log
}

@test "newer weights are not overwritten where nothing is left to train" {
    mlp_cfg batch=40 max_batches=3 >mlp.cfg
    darknet_on 1 classifier train small.data mlp.cfg -cmn -cmn_checkpoint 3 >train.log 2>&1
    mlp_cfg batch=40 max_batches=5 >mlp.cfg
    darknet_on 1 classifier train small.data mlp.cfg "out/mlp$FINAL.weights" -cmn -cmn_checkpoint 0 >train.log 2>&1
    cp "out/mlp$FINAL.weights" newer
    mlp_cfg batch=40 max_batches=3 >mlp.cfg
    fails_clearly_on 1 "nothing is left to train, and out/mlp$FINAL.weights has seen 200 images, more than the 120 of the checkpoint" \
        classifier train small.data mlp.cfg -cmn -cmn_checkpoint 3
    cmp newer "out/mlp$FINAL.weights"
    rm "out/mlp$FINAL.weights"
    darknet_on 1 classifier train small.data mlp.cfg -cmn -cmn_checkpoint 3 >train.log 2>&1
    [[ $(seen "out/mlp$FINAL.weights") == 120 ]]
    # Whenever they were written: copies have the time of the copy, and weights to start from are older.
    cp newer "out/mlp$FINAL.weights"
    touch -d '1 hour ago' "out/mlp$FINAL.weights"
    fails_clearly_on 1 'nothing is left to train, and .* has seen 200 images' classifier train small.data mlp.cfg -cmn -cmn_checkpoint 3
    cmp newer "out/mlp$FINAL.weights"
    # Where something is left they are kept beside.
    mlp_cfg batch=40 max_batches=4 >mlp.cfg
    darknet_on 1 classifier train small.data mlp.cfg -cmn -cmn_checkpoint 3 >train.log 2>&1
    grep "out/mlp$FINAL.weights has seen 200 images, more than the 160 of this training: it is kept as out/mlp$FINAL.weights.1" train.log
    cmp newer "out/mlp$FINAL.weights.1"
    [[ $(seen "out/mlp$FINAL.weights") == 160 ]]
}

@test "weights that were trained are kept where a file of weights leaves nothing to train" {
    mlp_cfg batch=20 max_batches=5 >mlp.cfg
    darknet_on 1 classifier train small.data mlp.cfg -cmn -cmn_checkpoint 0 >train.log 2>&1
    cp "out/mlp$FINAL.weights" trained
    head -c $(($(stat -c %s trained) - 16)) /dev/zero >zeros
    { head -c 16 trained; cat zeros; } >start.weights # as many images
    for number in 1 2; do
        darknet_on 1 classifier train small.data mlp.cfg start.weights -cmn -cmn_checkpoint 0 >train.log 2>&1
        grep 'nothing to train: iteration [0-9]* of 5 is reached already' train.log
        grep "out/mlp$FINAL.weights has seen .* it is kept as out/mlp$FINAL.weights.$number" train.log
    done
    cmp trained "out/mlp$FINAL.weights.1"
    # An average of weights that have seen more is kept, too.
    train_on 1 mlp.cfg -cmn_ema .9
    cp out/mlp_ema.weights average
    mlp_cfg batch=20 max_batches=3 >mlp.cfg
    train_on 1 mlp.cfg -cmn_ema .9
    cmp average out/mlp_ema.weights.1
}

@test "cmn_epochs that need more iterations than Darknet can count" {
    mlp_cfg batch=1 >mlp.cfg
    sed 's|.*|&|' train.list >one && for ((i = 0; i < 75; i++)); do cat one; done >train.list
    fails_clearly_on 1 'cmn_epochs=1000000: 3000000000 iterations are more than' classifier train small.data mlp.cfg -cmn \
        -cmn_epochs 1000000
}

@test "images/s counts all ranks, with dummy too" {
    small_data 500 20
    mlp_cfg batch=20 max_batches=10 >mlp.cfg
    for communicator in flat dummy; do
        darknet_on 2 classifier train small.data mlp.cfg -cmn -cmn_validate 0 -cmn_communicator "$communicator" \
            >train.log 2>&1
        # One row: 10 steps of 40 images, in at most the time that had elapsed, whatever the machine does.
        rows '.'
        [[ $(rows 'length == 1 and .[0]["images/s"] * .[0].elapsed_time >= 399') == true ]]
    done
}
