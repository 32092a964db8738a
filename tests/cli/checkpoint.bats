#!/usr/bin/env bats
# shellcheck disable=SC2030,SC2031,SC2154  # from helpers
# A training resumes from its checkpoint as if it had never ended; with other ranks as near as sums allow. What a checkpoint does not
# belong to is refused.

load helpers
load drivers

setup() {
    enter_folder
    small_data 240 20
}

# bn_cfg KEY=VALUE...: batch normalisation and dropout, which are each rank's own.
bn_cfg() {
    net_section batch=24 max_batches=9 "$@"
    printf '%s\n' '[convolutional]' batch_normalize=1 filters=4 size=5 stride=2 pad=1 activation=relu '[dropout]' probability=.3 \
        '[connected]' batch_normalize=1 output=10 activation=linear '[softmax]'
}

# run_on N ARGUMENTS...: into train.log.
run_on() {
    darknet_on "$1" "${@:2}" -cmn >train.log 2>&1 || { tail -n 40 train.log; return 1; }
}

# rows: what the log of this training says, but for times.
rows() {
    rows_in out "$1"
}

# rows_in FOLDER CFG
rows_in() {
    grep -oE '"epoch":[^,]*,"iteration":[0-9]+,"main/loss":[^,]*,("main/accuracy":[^,]*,)?("validation[^,]*,)*' "$1/$2.json"
}

# goes_on N AT CFG ARGUMENTS...: a training that takes checkpoints; then one from that of iteration AT. Same weights, same rows.
goes_on() {
    export CMN_DEBUG_CHECKPOINT_KEEP=99
    local n=$1 at=$2 cfg=$3 end
    shift 3
    echo "goes_on $n: $*"
    rm -rf out
    run_on "$n" "$@" -cmn_checkpoint "$at"
    end=$(result "$cfg")
    mv "$end" whole.weights
    rows "$cfg" >whole.rows
    find out -name '*.checkpoint' ! -name "$cfg-$at.checkpoint" -delete
    run_on "$n" "$@" -cmn_checkpoint "$at"
    grep "^cmn: resumed from out/$cfg-$at.checkpoint, iteration $at$" train.log
    cmp whole.weights "$end"
    diff whole.rows <(rows "$cfg")
}

# classifier CFG ARGUMENTS...
classifier() {
    printf '%s\n' classifier train small.data "$1.cfg" -cmn_seed 7 -cmn_validate 0 -cmn_report_every 2 "${@:2}"
}

# trains_on N AT CFG ARGUMENTS...: goes_on for a classifier.
trains_on() {
    local words
    mapfile -t words < <(classifier "${@:3}")
    goes_on "$1" "$2" "$3" "${words[@]}"
}

@test "same bits on 1 to 3 ranks: batch normalisation, dropout, subdivisions, Adam, a random rate, a drawn seed" {
    bn_cfg subdivisions=2 >bn.cfg
    bn_cfg adam=1 policy=random power=.5 >adam.cfg
    trains_on 1 5 adam
    trains_on 3 5 adam -cmn_communicator flat -cmn_seed auto
    # Checkpoints change nothing, nor do saves and validations.
    trains_on 2 5 bn -cmn_validate 1
    mv whole.weights with.weights
    run_on 2 classifier train small.data bn.cfg -cmn_seed 7 -cmn_validate 0 -cmn_checkpoint 0 -clear
    run -1 grep 'has checkpoints' train.log
    cmp with.weights "out/bn$FINAL.weights"
}

@test "same bits with what compressors, double buffering, local steps and LARS keep, with clipping and each scatter" {
    bn_cfg subdivisions=2 >bn.cfg
    trains_on 3 5 bn -cmn_communicator flat -cmn_compress powersgd -cmn_double_buffering 1 -cmn_clip .2 -cmn_scatter shard
    trains_on 2 5 bn -cmn_local_steps 3 -cmn_scatter none
    trains_on 2 5 bn -cmn_local_steps 3 -cmn_double_buffering 1
    trains_on 2 5 bn -cmn_lars .01 -cmn_sync_bn 1 -cmn_batch global
    mlp_cfg batch=2 max_batches=6 >mlp.cfg
    # As more than 8 ranks send.
    CMN_DEBUG_EXCHANGE=halving trains_on 3 3 mlp -cmn_communicator flat -cmn_compress bf16
}

@test "same bits for every other command that trains" {
    small_data 24 1
    make_data
    yolo_cfg subdivisions=2 >yolo.cfg
    grid_cfg >grid.cfg
    end_cfg 2 linear '[cost]' type=sse >regressor.cfg
    end_cfg 8 logistic '[cost]' type=sse >tag.cfg
    mask_cfg 80 '[logistic]' >segmenter.cfg
    mask_cfg 84 '[iseg]' classes=80 ids=4 >isegmenter.cfg
    { net width=7 height=7 && conv 48 1 linear && printf '%s\n' '[reorg]' stride=4 reverse=1 '[cost]' type=sse; } >super.cfg
    make_cifar
    end_cfg 10 linear '[softmax]' >cifar.cfg
    goes_on 2 4 yolo detector train data.data yolo.cfg
    not_offered 'other commands'
    goes_on 1 4 grid yolo train grid.cfg -data data.data
    goes_on 1 4 grid coco train grid.cfg -data data.data
    goes_on 1 4 regressor regressor train numbers.data regressor.cfg
    goes_on 1 4 tag tag train tag.cfg -data tags.data
    goes_on 1 4 segmenter segmenter train data.data segmenter.cfg
    goes_on 1 4 isegmenter isegmenter train data.data isegmenter.cfg
    goes_on 1 4 super super train super.cfg -data data.data
    goes_on 1 4 cifar cifar train cifar.cfg -data cifar.data
}

# reached FILE SIZES PID: the training has written the file, its log says that many sizes, or it has ended.
reached() {
    gone "$3" || [[ -s $1 && $(sizes train.log | wc -l) -ge $2 ]]
}

# until_there FILE SIZES WORDS...: a training on 2 ranks, killed as soon as FILE is there and its log says that many sizes.
until_there() {
    local pid
    rm -f train.log # of a training before
    setsid "${mpiexec[@]}" -n 2 "$DARKNET" "${@:3}" -cmn >train.log 2>&1 3>&- &
    pid=$!
    wait_for "$1" reached "$1" "$2" $pid || true
    kill_job $pid
    wait $pid || true
    [[ -s $1 ]] || { tail -n 30 train.log; return 1; }
}

# bats test_tags=alexeyab
@test "killed, with random=1: the same sizes at the same iterations" {
    export CMN_DEBUG_CHECKPOINT_KEEP=99
    small_data 24 1
    make_data
    net batch=3 max_batches=300 >random.cfg # sizes are drawn until 200 iterations before the end
    { conv 4 4 && conv 6 4 && conv 14 2 linear && yolo jitter=.2 random=1; } >>random.cfg
    words=(detector train data.data random.cfg -cmn_seed 7 -cmn_checkpoint 7)
    until_there out/random-21.checkpoint 3 "${words[@]}"
    sizes train.log | sed -n 1,3p >whole.sizes
    mv out/random-21.checkpoint whole.checkpoint
    find out -name '*.checkpoint' ! -name random-7.checkpoint -delete
    until_there out/random-21.checkpoint 2 "${words[@]}"
    grep 'resumed from out/random-7.checkpoint, iteration 7' train.log
    sed 1d whole.sizes | diff - <(sizes train.log | sed -n 1,2p)
    [[ $(sort -u whole.sizes | wc -l) -ge 2 ]]
    # Darknet's weights stand first: the layers have 4, 6 and 14 filters, with biases.
    cmp -n $((20 + 4 * (4 * 28 + 6 * 37 + 14 * 55))) whole.checkpoint out/random-21.checkpoint
}

# killed_at FILE N WORDS...: a training on N ranks, killed as soon as there is that file.
killed_at() {
    local file=$1 pid
    setsid "${mpiexec[@]}" -n "$2" "$DARKNET" "${@:3}" -cmn >train.log 2>&1 3>&- &
    pid=$!
    until [[ -s $file ]] || gone $pid; do :; done # some milliseconds later it would have ended
    kill_job $pid
    wait $pid || true
    [[ -s $file ]] || { tail -n 30 train.log; return 1; }
}

# stopped CFG WORDS...: a training on 2 ranks that is asked to stop after some iterations, and has no end of its own. Sets at, its last one.
stopped() {
    local cfg=$1 pid
    shift
    rm -f train.log # of a training before
    timeout --foreground --kill-after=15 "$HANG_LIMIT" "${mpiexec[@]}" -n 2 "$DARKNET" "$@" -cmn >train.log 2>&1 3>&- &
    pid=$!
    wait_for 'iteration 8' grep -qs '^8, ' train.log
    kill -USR1 "$(pgrep -P "$pid")" # mpiexec hands it to the ranks, and waits for them
    wait $pid || true
    at=$(sed -n 's/.*the training ends after iteration \([0-9]*\),.*/\1/p' train.log)
    [[ -s out/$cfg-$at.checkpoint ]]
}

# bats test_tags=alexeyab
@test "a signal: the training resumes from its last iteration, whose row is that of a training without the signal" {
    bn_cfg batch=2 max_batches=1000000 >bn.cfg # an epoch, at whose end ranks settle, has 60 iterations
    mapfile -t words < <(classifier bn -cmn_local_steps 4 -cmn_double_buffering 1 -cmn_checkpoint 1000000 -cmn_report_every 4)
    stopped bn "${words[@]}"
    end=$((at + 6))
    sed -i "s/max_batches=.*/max_batches=$end/" bn.cfg
    run_on 2 "${words[@]}"
    grep "resumed from out/bn-$at.checkpoint, iteration $at" train.log
    mv "out/bn$FINAL.weights" parts.weights
    rows bn >parts.rows
    grep "\"iteration\":$at," parts.rows
    run_on 2 "${words[@]}" -clear
    cmp parts.weights "out/bn$FINAL.weights"
    diff parts.rows <(rows bn)
}

@test "a signal in a step with a validation: the row is made when the training resumes" {
    small_data 48 20
    bn_cfg max_batches=1000000 >bn.cfg # each iteration ends an epoch
    mapfile -t words < <(classifier bn -cmn_double_buffering 1 -cmn_checkpoint 1000000 -cmn_validate 1)
    stopped bn "${words[@]}"
    sed -i "s/max_batches=.*/max_batches=$((at + 3))/" bn.cfg
    run_on 2 "${words[@]}"
    grep "resumed from out/bn-$at.checkpoint, iteration $at" train.log
    mv "out/bn$FINAL.weights" parts.weights
    rows bn >parts.rows
    grep "\"iteration\":$at,.*validation" parts.rows
    run_on 2 "${words[@]}" -clear
    cmp parts.weights "out/bn$FINAL.weights"
    diff parts.rows <(rows bn)
}

# ends_like WHOLE: the training in out/ has ended with the files and the rows of the one in that folder.
ends_like() {
    local file
    for file in "mlp$FINAL" mlp_best mlp_ema; do
        cmp "$1/$file.weights" "out/$file.weights"
    done
    diff <(rows mlp) "$1.rows"
}

# best_cfg: a training that ends when its accuracy grows no more.
best_cfg() {
    local rate=.01
    small_data 240 40
    pjreddies || rate=.003 # three channels
    mlp_cfg batch=48 learning_rate=$rate cmn_batch=global cmn_patience=3 >mlp.cfg
}

@test "cmn_patience: without an average the best weights are those of their epoch" {
    best_cfg
    run_on 1 classifier train small.data mlp.cfg -cmn_seed 7 -cmn_epochs 60
    [[ $(<train.log) =~ ', of iteration '([0-9]+)', in the last 3 validations' ]]
    if pjreddies; then
        cmp out/mlp_best.weights "out/mlp_$((BASH_REMATCH[1] / 5)).weights"
    fi
}

@test "cmn_patience, cmn_ema, cmn_clip: ended at a random checkpoint, at the last one, and killed: the same best weights and the same last iteration" {
    export CMN_DEBUG_CHECKPOINT_KEEP=99
    local best end ended at words
    best_cfg
    sed -i 's/^cmn_patience=3/&\ncmn_ema=.9\ncmn_clip=.5/' mlp.cfg
    words=(classifier train small.data mlp.cfg -cmn_seed 7 -cmn_epochs 60 -cmn_checkpoint 2)
    rm -rf out
    run_on 3 "${words[@]}"
    ended='cmn_patience=3: no better accuracy than [0-9.]*, of iteration ([0-9]+), in the last 3 validations: the training ends after iteration ([0-9]+),'
    [[ $(<train.log) =~ $ended ]]
    best=${BASH_REMATCH[1]} end=${BASH_REMATCH[2]} # an epoch has 5 iterations
    echo "best $best, last $end"
    ((best % 5 == 0 && end == best + 15 && end < 300))
    jq -e 'last | .clipped_steps > 0' out/mlp.json
    [[ $(seen out/mlp_best.weights) == $((best * 48)) ]]
    [[ $(seen "out/mlp$FINAL.weights") == $((end * 48)) ]]
    assert_far "out/mlp$FINAL.weights" out/mlp_ema.weights .01
    # Ended again from a checkpoint: the best weights are of a later step, as after a kill before the next checkpoint.
    mv out whole && rows_in whole mlp >whole.rows
    at=$((RANDOM % (end / 2 - 1) * 2 + 2))
    echo "resumed from $at"
    mkdir out && cp -p whole/mlp.json whole/mlp_{best,ema}.weights whole/mlp-$at.checkpoint out
    run_on 3 "${words[@]}"
    grep "resumed from out/mlp-$at.checkpoint" train.log
    ends_like whole
    # The last checkpoint: it has ended. A kill may come before older ones are removed, and then nothing else is written.
    rm "out/mlp$FINAL.weights" out/mlp_ema.weights
    find out -name '*.checkpoint'
    CMN_DEBUG_CHECKPOINT_KEEP=2 run_on 3 "${words[@]}"
    [[ $(find out -name '*.checkpoint' | wc -l) -eq 2 ]]
    (($(grep -c "nothing to train: cmn_patience=3 has ended this training after iteration $end;" train.log) == 1))
    ends_like whole
    rm -rf out
    killed_at "out/mlp-$((RANDOM % 5 * 2 + 2)).checkpoint" 3 "${words[@]}"
    run_on 3 "${words[@]}"
    grep 'resumed from' train.log
    ends_like whole
}

@test "other numbers of ranks: as one training with the same batch; another communicator" {
    local how chain step end
    while IFS='|' read -r how chain; do
        end=${chain##* }
        mlp_cfg batch=24 max_batches="${end#*:}" >mlp.cfg
        mapfile -t words < <(classifier mlp -cmn_batch global)
        # shellcheck disable=SC2206  # words
        words+=($how)
        rm -rf out
        [[ $how == *local* ]] || run_on 1 "${words[@]}"
        [[ $how == *local* ]] || mv "out/mlp$FINAL.weights" whole.weights
        for step in $chain; do
            sed -i "s/max_batches=.*/max_batches=${step#*:}/" mlp.cfg
            run_on "${step%:*}" "${words[@]}" -cmn_checkpoint 1000
            [[ $step == 3:* ]] || grep 'written by [0-9] ranks: their common state is restored' train.log
        done
        [[ $(seen "out/mlp$FINAL.weights") -eq $((${end#*:} * 24)) ]]
        [[ $how == *local* ]] || assert_close whole.weights "out/mlp$FINAL.weights" 1e-6
    done <<'END'
|3:6 2:12 4:18
-cmn_communicator flat -cmn_lars .01|3:6 2:12
-cmn_local_steps 3|3:6 4:12
END
    # As many ranks by another communicator: each goes on with what it had.
    mapfile -t words < <(classifier mlp)
    run_on 2 "${words[@]}" -cmn_checkpoint 9 -clear
    mv "out/mlp$FINAL.weights" whole.weights
    rm out/mlp-12.checkpoint
    run_on 2 "${words[@]}" -cmn_checkpoint 9 -cmn_communicator naive
    grep 'the checkpoint was written by communicator shm' train.log
    assert_close whole.weights "out/mlp$FINAL.weights" 1e-7
}

# as_large BEFORE AFTER END AT LIMIT KEYS...: a step has as many images as ranks times 24, and each image is the same: the sum over a step
# is as many times one gradient. 6 steps on BEFORE ranks, continued on AFTER ranks from iteration AT to END, are as many steps on one rank.
as_large() {
    local words image
    read -r image <train.list
    for ((i = 0; i < 240; i++)); do echo "$image"; done >train.list
    mapfile -t words < <(classifier mlp -cmn_batch per_rank -cmn_checkpoint 1000 "${@:6}")
    run_on 1 "${words[@]}"
    mv "out/mlp$FINAL.weights" whole.weights
    sed -i 's/max_batches=.*/max_batches=6/' mlp.cfg
    run_on "$1" "${words[@]}" -clear
    sed -i "s/max_batches=.*/max_batches=$3/" mlp.cfg
    run_on "$2" "${words[@]}"
    grep "resumed from out/mlp-6.checkpoint, iteration $4" train.log
    dd if="out/mlp$FINAL.weights" of=whole.weights bs=20 count=1 conv=notrunc status=none # only how many images were seen differs
    assert_close whole.weights "out/mlp$FINAL.weights" "$5"
}

# Adam's updates are the same whatever the number of images is.
@test "per_rank with Adam, 3 ranks and then 1: updates go on as large as they were" {
    not_offered 'adam'
    mlp_cfg batch=24 max_batches=12 adam=1 learning_rate=.001 decay=0 >mlp.cfg
    as_large 3 1 24 18 1e-5 # 6 iterations of 72 images are 18 of 24
}

# The ranks of a node have the momentum in common, and it is made as large as their sums once.
@test "per_rank with cmn_clip, 1 rank and then 2: the momentum goes on as large as it was" {
    mlp_cfg batch=24 max_batches=8 >mlp.cfg
    as_large 1 2 5 3 1e-6 -cmn_clip 1 # 6 iterations of 24 images are 3 of 48
    [[ ! -e out/mlp-6.checkpoint && -e out/mlp-5.checkpoint ]]
}

@test "two cfgs whose names are one up to the first dot: it is said whose checkpoint that is" {
    mlp_cfg batch=24 max_batches=2 >mlp.a.cfg
    mlp_cfg batch=24 max_batches=3 learning_rate=.01 >mlp.b.cfg
    mapfile -t words < <(classifier mlp.a -cmn_checkpoint 2)
    run_on 1 "${words[@]}"
    run_on 1 "${words[@]}"
    run -1 grep 'checkpoint was written with' train.log
    run_on 1 "${words[@]/mlp.a/mlp.b}"
    grep 'resumed from out/mlp-2.checkpoint, iteration 2' train.log
    grep '^cmn: the checkpoint was written with mlp.a.cfg, and this is mlp.b.cfg: .*-clear' train.log
}

@test "what has changed in the cfg since is said" {
    mlp_cfg batch=24 max_batches=3 >changed.cfg
    words=(classifier train small.data changed.cfg -cmn_validate 0 -cmn_checkpoint 3)
    run_on 1 "${words[@]}"
    sed -i 's/^max_batches=.*/max_batches=6/; s/^learning_rate=.*/learning_rate = .01/; s/^momentum=0.9/momentum=.90/' changed.cfg
    sed -i 's/^activation=relu/activation=leaky/' changed.cfg
    run_on 1 "${words[@]}" -cmn_report quiet
    grep -F 'the cfg has changed since the checkpoint: [net] learning_rate was 0.02, is .01; [connected] activation of layer 0 was relu, is leaky. If that is another training' train.log
    # An average, and best weights, that the training did not have before.
    sed -i 's/^max_batches=.*/max_batches=7/' changed.cfg
    run_on 1 "${words[@]}" -cmn_validate 1 -cmn_ema .9
    grep 'cmn_ema: the checkpoint has no average of the weights: it begins with its weights' train.log
    assert_close "out/changed$FINAL.weights" out/changed_ema.weights .1
    run -1 grep 'it was the best of this one' train.log
}

@test "keys that decide the weights, another order of the classes, and best weights that are gone" {
    mlp_cfg batch=24 max_batches=3 >keys.cfg
    words=(classifier train small.data keys.cfg -cmn_checkpoint 3)
    run_on 1 "${words[@]}" -cmn_validate 1 -cmn_clip 0.3 -cmn_ema 0.9
    sed -i 's/^max_batches=.*/max_batches=6/' keys.cfg
    sed -i 1d valid.list
    run_on 1 "${words[@]}" -cmn_validate 1 -cmn_clip 0.1
    grep 'the checkpoint was written with cmn_clip=0.3, and this training has 0.1: ' train.log
    grep 'the checkpoint was written with cmn_ema=0.9, and this training has off: ' train.log
    run -1 grep 'it was the best of this one' train.log
    grep 'the validation list has changed since the checkpoint: new figures are compared with the best one of the old list, 0' train.log
    rm out/keys_best.weights
    sed -i 's/^max_batches=.*/max_batches=9/' keys.cfg
    run_on 1 "${words[@]}" -cmn_validate 1 -cmn_clip 0.1
    grep 'out/keys_best.weights is missing, or another training.s: it was the best of this one, of iteration [0-9]; ' train.log
    [[ -s out/keys_best.weights ]]
    # A trial without checkpoints leaves best weights that have seen less.
    sed -i 's/^max_batches=.*/max_batches=2/' keys.cfg
    run_on 1 "${words[@]}" -cmn_checkpoint 0 -cmn_validate 1 -cmn_clip 0.1
    sed -i 's/^max_batches=.*/max_batches=12/' keys.cfg
    run_on 1 "${words[@]}" -cmn_validate 1 -cmn_clip 0.1
    grep 'it was the best of this one' train.log
    run -1 grep 'the validation list has changed' train.log
    tac labels.txt >other.txt
    mv other.txt labels.txt
    sed -i 's/^max_batches=.*/max_batches=15/' keys.cfg
    fails_clearly_on 1 'is of another training: the hash of its labels file is [0-9a-f]*, and here ' "${words[@]}" -cmn -cmn_clip 0.1
}

# run_id FILE: which training a checkpoint names.
run_id() {
    grep -aoE '"run":"[0-9a-f]{16}"' "$1" | cut -d '"' -f 4
}

@test "a training keeps its id through restarts; an attempt goes on from no other one's, and from no less than was reached" {
    bn_cfg max_batches=4 >bn.cfg
    mapfile -t words < <(classifier bn -cmn_validate 0 -cmn_checkpoint 2)
    run_on 1 "${words[@]}"
    id=$(run_id out/bn-4.checkpoint)
    [[ -n $id && $(run_id out/bn-2.checkpoint) == "$id" ]]
    sed -i 's/max_batches=.*/max_batches=6/' bn.cfg
    # What cmn-run hands on: the id, images, iteration, host.
    export OMPI_CMN_REACHED="$id 1000000 9 node1"
    fails_clearly_on 1 'this training has reached iteration 9 on node1, and out on .* has it up to iteration 4: all hosts' "${words[@]}" -cmn
    OMPI_CMN_REACHED="0123456789abcdef 1 1 node1"
    fails_clearly_on 1 'has reached iteration 1 on node1, and out on .* has a checkpoint of iteration 4 of another one: all hosts' "${words[@]}" -cmn
    OMPI_CMN_REACHED="0123456789abcdef 0 -1 node1"
    fails_clearly_on 1 'has begun on node1, and out on .* has a checkpoint of iteration 4 of another one: all hosts' "${words[@]}" -cmn
    run -0 find out -name '.*'
    [[ -z $output ]]
    # -clear has been obeyed by the attempt before.
    OMPI_CMN_REACHED="$id 1 4 node1"
    run_on 1 "${words[@]}" -clear
    grep 'resumed from out/bn-4.checkpoint' train.log
    [[ $(run_id out/bn-6.checkpoint) == "$id" ]]
    # A damaged one, which is named, is another matter.
    truncate -s -100 out/bn-6.checkpoint
    OMPI_CMN_REACHED="$id 1000000 6 node1"
    run_on 1 "${words[@]}"
    grep 'resumed from out/bn-4.checkpoint' train.log
    # The attempt before has begun anew, and came to no checkpoint.
    OMPI_CMN_REACHED="0123456789abcdef 0 -1 node1"
    run_on 1 "${words[@]}" -clear
    [[ $(run_id out/bn-6.checkpoint) == 0123456789abcdef ]]
    unset OMPI_CMN_REACHED
    run_on 1 "${words[@]}" -clear
    [[ $(run_id out/bn-6.checkpoint) != 0123456789abcdef && $(run_id out/bn-6.checkpoint) != "$id" ]]
}

@test "damaged ones, -clear, a weights argument, and what does not belong together" {
    bn_cfg >bn.cfg
    mapfile -t words < <(classifier bn -cmn_checkpoint 3)
    run_on 1 "${words[@]}"
    # Stock Darknet reads a checkpoint as weights; so does this one, and says nothing about the rest.
    "$DARKNET" classifier valid small.data bn.cfg "out/bn$FINAL.weights" 2>/dev/null | tail -n 1 >weights.txt
    "$DARKNET" classifier valid small.data bn.cfg out/bn-9.checkpoint 2>valid.err | tail -n 1 | diff - weights.txt
    grep -q 'Loading weights from out/bn-9.checkpoint...Done' valid.err
    cmp -n "$(stat -c %s "out/bn$FINAL.weights")" "out/bn$FINAL.weights" out/bn-9.checkpoint
    # The newest is cut. That must be heard of, however quiet the rest is to be.
    truncate -s -100 out/bn-9.checkpoint
    sed -i 's/max_batches=.*/max_batches=12/' bn.cfg
    run_on 1 "${words[@]}" -cmn_report quiet
    grep 'damaged checkpoint: .*bn-9.checkpoint' train.log
    grep 'resumed from out/bn-6.checkpoint, iteration 6' train.log
    fails_clearly_on 2 'bn-12.checkpoint is of another training: its cmn_seed is 7, and here 8. .*-clear.*-cmn_checkpoint 0' \
        "${words[@]}" -cmn -cmn_seed 8
    fails_clearly_on 1 'cmn_scatter is global, and here shard' "${words[@]}" -cmn -cmn_scatter shard
    fails_clearly_on 1 'cmn_batch is per_rank, and here global' "${words[@]}" -cmn -cmn_batch global
    fails_clearly_on 1 'images of each rank in a step are 24, and here 20' "${words[@]}" -cmn < <(sed -i s/batch=24/batch=20/ bn.cfg)
    sed -i s/batch=20/batch=24/ bn.cfg
    sed -i s/filters=4/filters=5/ bn.cfg
    fails_clearly_on 1 'its network has "layer 2 .*", and here "layer 2 ' "${words[@]}" -cmn
    sed -i s/filters=5/filters=4/ bn.cfg
    run -0 find out -name '.*' -o -name '*.part'
    [[ -z $output ]]
    cp train.list good.list
    tac good.list >train.list
    sed -i 's/max_batches=.*/max_batches=13/' bn.cfg
    fails_clearly_on 1 'is of a training on another list, of 240 samples; this list, of 240, has other lines: .*-clear' "${words[@]}" -cmn
    run -0 find out -name '.*' -o -name '*.part'
    [[ -z $output ]] # no refusal leaves a lock
    mv good.list train.list
    # A weights argument; then none are used, which is said.
    run -1 grep 'the weights file' train.log
    run_on 1 "${words[@]}" "out/bn$FINAL.weights"
    grep 'the weights file of the command line is ignored' train.log
    run_on 1 "${words[@]}" -cmn_checkpoint 0
    grep 'out has checkpoints of bn up to iteration 13, which are ignored' train.log
    # Starting over leaves the old ones until a new one is there.
    sed -i 's/max_batches=.*/max_batches=2/' bn.cfg
    run_on 1 "${words[@]}" -clear
    [[ $(seen "out/bn$FINAL.weights") -eq 48 && $(find out -name 'bn-*.checkpoint') == out/bn-2.checkpoint ]]
    run_on 1 "${words[@]}" -cmn_nonfinite ignore -clear < <(sed -i 's/learning_rate=.*/learning_rate=1e30/' bn.cfg)
    grep 'weights are NaN or Inf: no checkpoints are written' train.log
    [[ $(find out -name 'bn-*.checkpoint') == out/bn-2.checkpoint ]]
    sed -i 's/learning_rate=.*/learning_rate=0.02/' bn.cfg
    truncate -s 500 out/bn-2.checkpoint
    sed -i 's/max_batches=.*/max_batches=4/' bn.cfg
    run darknet_on 1 "${words[@]}" -cmn
    [[ $status -eq 1 && $output == *'damaged checkpoint: out/bn-2.checkpoint'* && $output == *-clear* ]]
}

@test "checkpoints that cannot be written: each is said, with its iteration" {
    [[ -z $SAN ]] || skip 'the sanitizers must be loaded first'
    cat >calls.c <<'END'
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int rename(const char *from, const char *to)
{
    errno = EIO;
    return strstr(to, ".checkpoint") ? -1 : (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}
END
    gcc -shared -fPIC -o calls.so calls.c
    mlp_cfg batch=24 max_batches=6 >mlp.cfg
    mapfile -t words < <(classifier mlp -cmn_checkpoint 1)
    LD_LIBRARY_PATH=$PWD LD_PRELOAD=calls.so run -1 darknet_on 1 "${words[@]}" -cmn
    printf '%s\n' "$output" >train.log
    grep '^cmn.* the last checkpoint is not written: the weights are saved, and a resume begins before them' train.log
    [[ $(seen "out/mlp$FINAL.weights") -eq 144 ]]
    sed -nE 's|.*checkpoint of iteration ([0-9]+) not written: out/mlp-([0-9]+)\.checkpoint: Input/output error.*|\1 \2|p' train.log |
        diff - <(printf '%s\n' '1 1' '2 2' '3 3' '4 4' '5 5' '6 6')
}
