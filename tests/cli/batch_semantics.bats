#!/usr/bin/env bats
# What the numbers of a cfg mean on several ranks: each row of the table in docs/use/batch.md has its test here (the last test).

load helpers

setup() {
    enter_folder
    small_data 120 40
}

# shellcheck disable=SC2034  # read by mlp_cfg
ACTIVATION=tanh # no flips of a maximum: numbers.bats
LIMIT=1e-6

# rows N CFG ARGUMENTS...: trains on N ranks; afterwards `rows` has iteration, epoch and learning rate of each step.
rows() {
    local n=$1 cfg=$2
    shift 2
    rm -f log.json
    train_on "$n" "$cfg" -cmn_report_every 1 -cmn_json log.json "$@"
    jq -r '.[] | select(.iteration) | [.iteration, .epoch, .lr] | @tsv' log.json >rows
    echo "$n ranks, $cfg $*: $(wc -l <rows) rows"
}

# last COLUMN: of the last row.
last() {
    tail -n 1 rows | cut -f "$1"
}

# rates_are EXPRESSION: the learning rate at iteration i, in awk's words, for each row.
rates_are() {
    awk -F '\t' "
        function abs(x) { return x < 0 ? -x : x }
        { i = \$1; want = $1
          if (abs(\$3 - want) > 1e-5 * want + 1e-9) { print \"iteration \" i \": \" \$3 \", not \" want; bad = 1 } }
        END { exit bad || NR == 0 }" rows
}

@test "batch: of one rank with per_rank, of all with global; seen, iteration and epoch follow" {
    mlp_cfg batch=21 max_batches=6 >mlp.cfg
    rows 2 mlp.cfg
    [[ $(seen "out/mlp$FINAL.weights") -eq 252 && $(last 1) -eq 6 && $(last 2) == 2.1 ]]
    grep -q 'batch 21 per rank, global batch 42' train.log
    rows 2 mlp.cfg -cmn_batch global
    [[ $(seen "out/mlp$FINAL.weights") -eq 126 && $(last 1) -eq 6 && $(last 2) == 1.05 ]]
    grep -q 'batch 10 per rank (rank 0; parts differ by one), global batch 21' train.log
}

@test "subdivisions: the passes of a step, and no image more" {
    mlp_cfg batch=20 subdivisions=4 max_batches=4 >passes.cfg
    rows 2 passes.cfg
    [[ $(seen "out/passes$FINAL.weights") -eq 160 ]]
    rows 2 passes.cfg -cmn_batch global
    [[ $(seen "out/passes$FINAL.weights") -eq 80 ]]
    # Only whole micro-batches can be normalised over all ranks: 2 images do not reach for 3.
    mlp_cfg batch=8 subdivisions=4 cmn_batch=global >few.cfg
    fails_clearly_on 3 'cmn_batch=global: 2 images a micro-batch .*raise batch' classifier train small.data few.cfg -cmn -cmn_sync_bn 1
}

@test "subdivisions with global, the default: whole micro-batches while they reach, then shares of the batch" {
    mlp_cfg batch=6 subdivisions=3 max_batches=4 cmn_batch=global >passes.cfg
    trained one 1 passes.cfg
    sed -i /cmn_batch/d passes.cfg
    for shares in '2:batch 2 per rank (rank 0; parts differ by a micro-batch)' '3:batch 2 per rank' '4:batch 1 per rank (rank 0; parts differ by one)'; do
        train_on "${shares%%:*}" passes.cfg
        grep -F "${shares#*:}, global batch 6" train.log
        [[ $(seen "out/passes$FINAL.weights") -eq 24 ]]
        assert_close one.weights "out/passes$FINAL.weights" $LIMIT
    done
    fails_clearly_on 7 'cmn_batch=global: 6 images a step .*7 ranks: raise batch, or lower the number of ranks' \
        classifier train small.data passes.cfg -cmn
}

@test "learning_rate: the cfg's on any number of ranks; with cmn_scale_lr=linear times that number" {
    mlp_cfg batch=20 learning_rate=.01 max_batches=2 >mlp.cfg
    rows 2 mlp.cfg
    rates_are .01
    run -1 grep -q 'learning rate' train.log
    rows 2 mlp.cfg -cmn_scale_lr linear
    rates_are .02
    [[ $(grep -c "learning rate 0.02, 2 times the cfg's from the first iteration on.*burn_in (5 epochs are 15 iterations)" train.log) -eq 1 ]]
    rows 2 mlp.cfg -cmn_batch global -cmn_scale_lr linear
    rates_are .01
    grep -q 'cmn_scale_lr=linear changes nothing with cmn_batch=global' train.log
    rows 1 mlp.cfg -cmn_scale_lr linear
    rates_are .01
}

@test "cmn_scale_lr=linear: N ranks with batch B are one with N*B and N times the rate" {
    mlp_cfg batch=40 learning_rate=.04 policy=steps steps=7 scales=.1 burn_in=4 power=1 max_batches=9 >one.cfg
    train_on 1 one.cfg
    mlp_cfg batch=20 learning_rate=.02 policy=steps steps=7 scales=.1 burn_in=4 power=1 max_batches=9 >two.cfg
    train_on 2 two.cfg -cmn_scale_lr linear
    grep -q "learning rate 0.04, 2 times the cfg's, reached after burn_in=4 iterations" train.log
    assert_close "out/one$FINAL.weights" "out/two$FINAL.weights" $LIMIT
    train_on 2 two.cfg
    assert_far "out/one$FINAL.weights" "out/two$FINAL.weights" 1e-3
}

@test "burn_in, policy, steps: in iterations, whatever N; linear scales them as a whole" {
    while IFS='|' read -r way keys after; do
        read -r batch scale factor <<<"$way"
        # shellcheck disable=SC2086
        mlp_cfg batch=20 max_batches=6 learning_rate=.01 burn_in=3 power=2 policy=$keys >mlp.cfg
        rows 2 mlp.cfg -cmn_batch "$batch" -cmn_scale_lr "$scale"
        rates_are "$factor * .01 * (i < 3 ? (i / 3) ^ 2 : $after)"
    done <<'END'
per_rank off 1|steps steps=4,6 scales=.5,.1|(i < 4 ? 1 : i < 6 ? .5 : .05)
global off 1|step step=4 scale=.1|(i < 4 ? 1 : .1)
per_rank linear 2|sigmoid gamma=.5 step=4|1 / (1 + exp(.5 * (i - 4)))
END
}

@test "burn_in that never ends is said" {
    mlp_cfg batch=20 max_batches=3 burn_in=3 >mlp.cfg
    train_on 2 mlp.cfg -cmn_scale_lr linear
    grep -q 'never reached, for burn_in=3 does not end before iteration 3, the last one: lower it' train.log
}

# bats test_tags=alexeyab
@test "policy=random: all ranks draw the same rate, that of one rank, also after a resume" {
    mlp_cfg batch=24 max_batches=5 learning_rate=.02 policy=random power=1 >mlp.cfg
    rows 1 mlp.cfg -cmn_batch global
    mv rows one
    mv "out/mlp$FINAL.weights" one.weights
    rows 2 mlp.cfg -cmn_batch global -cmn_verify 1 -cmn_checkpoint 3
    diff one rows
    assert_close one.weights "out/mlp$FINAL.weights" $LIMIT
    [[ $(cut -f 3 rows | sort -u | wc -l) -eq 5 ]]
    rm out/mlp-5.checkpoint
    rows 2 mlp.cfg -cmn_batch global -cmn_checkpoint 3
    grep 'resumed from out/mlp-3.checkpoint' train.log
    tail -n 2 one | diff - <(tail -n 2 rows)
}

@test "cmn_epochs: counts images, and sets max_batches, also for poly" {
    mlp_cfg batch=20 max_batches=1000 learning_rate=.01 policy=poly power=1 cmn_epochs=2 >mlp.cfg
    rows 2 mlp.cfg
    [[ $(last 1) -eq 6 && $(last 2) == 2 ]]
    rates_are '.01 * (1 - i / 6)'
    rows 2 mlp.cfg -cmn_batch global
    [[ $(last 1) -eq 12 && $(last 2) == 2 ]]
    rates_are '.01 * (1 - i / 12)'
}

@test "random=1: all ranks resize to the same size, that of one rank" {
    not_offered 'random=1 of a classifier'
    net_section batch=2 random=1 width=32 height=32 max_batches=41 >net.cfg # resized before iterations 1 and 41
    printf '%s\n' '[convolutional]' 'filters=4' 'size=3' 'stride=4' 'activation=linear' \
        '[convolutional]' 'filters=10' 'size=1' 'stride=1' 'activation=linear' '[avgpool]' '[softmax]' >>net.cfg
    mkdir logs
    for n in 1 2; do
        rm -f logs/*
        train_on $n net.cfg -cmn_rank_logs logs -cmn_report lines
        sizes train.log >size.0
        [[ $(wc -l <size.0) -eq 2 ]]
        [[ $n -eq 1 ]] || diff size.0 <(sizes logs/rank-1.log)
        [[ $n -eq 1 ]] || diff size.0 size.one
        mv size.0 size.one
    done
}

@test "resuming with another number of ranks: at the same image, and at the iteration that it is there" {
    mlp_cfg batch=20 learning_rate=.01 policy=steps steps=8 scales=.1 max_batches=6 >mlp.cfg
    trained two 2 mlp.cfg
    [[ $(seen two.weights) -eq 240 ]]
    sed -i 's/max_batches=6/max_batches=9/' mlp.cfg
    rows 3 mlp.cfg two.weights # 240 images are 4 steps of 60
    [[ $(head -n 1 rows | cut -f 1) -eq 5 && $(last 1) -eq 9 && $(seen "out/mlp$FINAL.weights") -eq 540 ]]
    rates_are 'i < 8 ? .01 : .001'
    sed -i 's/max_batches=9/max_batches=14/' mlp.cfg
    for n in 1 3; do # 12 steps of 20, on any number of ranks
        rows $n mlp.cfg two.weights -cmn_batch global
        [[ $(head -n 1 rows | cut -f 1) -eq 13 && $(last 1) -eq 14 && $(seen "out/mlp$FINAL.weights") -eq 280 ]]
        rates_are .001
    done
}

@test "cmn_clip with LARS: 3 ranks train as one; a cfg with it validates; its checkpoint is one of its own" {
    mlp_cfg batch=30 learning_rate=.1 cmn_lars=.1 cmn_clip=.1 max_batches=10 >mlp.cfg
    trained one 1 mlp.cfg -cmn_batch global
    grep -q ', LARS 0.1, clipped to 0.1' train.log
    train_on 3 mlp.cfg -cmn_batch global -cmn_verify 1
    assert_close one.weights "out/mlp$FINAL.weights" $LIMIT
    mlp_cfg cmn_clip=.1 max_batches=2 >mlp.cfg
    train_on 2 mlp.cfg -cmn_checkpoint 2
    sed 's/^cmn_clip=/cmn_local_steps=4\n&/' mlp.cfg >both.cfg
    ! pjreddies || darknet_on 1 classifier valid small.data both.cfg "out/mlp$FINAL.weights" -cmn >valid.log 2>&1
    fails_clearly_on 2 'cmn_lars, cmn_clip, cmn_nonfinite=skip. its momentum is kept apart, and here with the gradients' \
        classifier train small.data mlp.cfg -cmn -cmn_clip off -cmn_checkpoint 2
}

# The first cell of each row of the table, and the name of the test that holds it.
row_tests() {
    cat <<'END'
batch: batch
subdivisions: subdivisions
seen in a weights file, epoch: batch
iteration (log, JSON, file names): batch
learning_rate: learning_rate
burn_in, power, policy, steps, scales, step, scale, gamma: burn_in
max_batches: batch
policy=random: policy=random
cmn_epochs: cmn_epochs
random=1: random=1
weights of another number of ranks: resuming
END
}

@test "each row of the table in docs/use/batch.md has a test here" {
    sed -n '/^| in the cfg /,/^$/p' "$REPO/docs/use/batch.md" | sed '1,2d; /^$/d' | tr -d '`' | awk -F ' *[|] *' '{ print $2 }' >rows
    row_tests >tests
    diff rows <(cut -d : -f 1 tests)
    while IFS= read -r name; do
        grep -qE "^@test \"([^\"]*, )?$name\b" "$BATS_TEST_FILENAME" || { echo "no test $name"; false; }
    done < <(sed 's/.*: //' tests)
}
