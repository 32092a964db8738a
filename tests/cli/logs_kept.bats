#!/usr/bin/env bats
# shellcheck disable=SC2154  # mpiexec: helpers.bash
# The JSON log over a training that ends and goes on: no row is lost, and none is told twice.

load helpers
load reports

# to N MAX ARGUMENTS...: on N ranks up to iteration MAX, a row every 5.
to() {
    sed -i "s/max_batches=.*/max_batches=$2/" mlp.cfg
    train_on "$1" mlp.cfg -cmn_report_every 5 "${@:3}"
}

# rows_are ITERATIONS: in the log; and epochs ascend.
rows_are() {
    echo "JSON: $(json_iterations out/mlp.json); wanted: $1"
    [[ $(json_iterations out/mlp.json) == "$1" ]]
    jq -e '[.[].epoch] | . == unique' out/mlp.json
}

@test "other ranks count iterations anew: earlier rows stay, and none is told twice" {
    needs jq
    small_data 600 20
    mlp_cfg batch=20 >mlp.cfg
    to 1 30 -cmn_checkpoint 30
    rows_are '5 10 15 20 25 30'
    cp -r out before
    # Killed before the first checkpoint of the new count, and again, with as many ranks or other ones.
    to 3 20 -cmn_checkpoint 100
    rows_are '5 10 15 20 25 30 15 20'
    for again in '3 15 15' '2 25 20 25' '1 35 35'; do
        read -r ranks max rows <<<"$again"
        rm out/*.checkpoint
        cp before/*.checkpoint out/
        to "$ranks" "$max" -cmn_checkpoint 100
        rows_are "5 10 15 20 25 30 $rows"
    done
    # From a checkpoint of the new count, whose iterations are lower than those of before.
    rm out/*.checkpoint
    cp before/*.checkpoint out/
    to 3 20 -cmn_checkpoint 5
    to 3 25 -cmn_checkpoint 5
    rows_are '5 10 15 20 25 30 15 20 25'
    # With a weights file, too: 25 iterations of 60 images are 75 of 20.
    rm out/*.checkpoint
    sed -i 's/max_batches=.*/max_batches=80/' mlp.cfg
    darknet_on 1 classifier train small.data mlp.cfg "out/mlp$FINAL.weights" -cmn -cmn_validate 0 -cmn_report_every 5
    rows_are '5 10 15 20 25 30 15 20 25 80'
}

@test "a weights file of a training with another list: rows of before stay" {
    needs jq
    small_data 200 20
    mlp_cfg batch=20 >mlp.cfg
    to 1 20
    small_data 400 20
    sed -i 's/max_batches=.*/max_batches=25/' mlp.cfg
    darknet_on 1 classifier train small.data mlp.cfg "out/mlp$FINAL.weights" -cmn -cmn_validate 0 -cmn_report_every 5
    [[ $(json_iterations out/mlp.json) == '5 10 15 20 25' ]]
}

# whole_rows FILE: how many a torn log has.
whole_rows() {
    local row n=0
    while IFS= read -r row || [[ -n $row ]]; do
        ! jq -e 'has("iteration")' <<<"${row%,}" >/dev/null 2>&1 || n=$((n + 1))
    done <"$1"
    echo "$n"
}

@test "a torn JSON log keeps its whole rows, and that is said" {
    needs jq
    train -cmn_checkpoint 10
    sed -i 's/max_batches=.*/max_batches=12/' mlp.cfg
    cp -r out before
    # Cut at two thirds, and behind the array's begin; other places are in tests/unit/report/json_log.c.
    size=$(stat -c %s out/mlp.json)
    for bytes in $((size * 2 / 3)) 1; do
        rm -r out
        cp -r before out
        truncate -s "$bytes" out/mlp.json
        n=$(whole_rows out/mlp.json)
        train -cmn_checkpoint 10
        echo "$bytes of $size bytes, $n rows: $(json_iterations out/mlp.json)"
        grep "^cmn: JSON log out/mlp.json: its end is torn .*: $n of $n whole rows are kept" err.txt
        [[ $(grep -c torn err.txt) -eq 1 ]]
        diff <(jq -c ".[:$n][]" before/mlp.json) <(jq -c '.[:-1][]' out/mlp.json)
        [[ $(jq 'last.iteration' out/mlp.json) == 12 ]]
    done
    # Nothing is torn there.
    rm -r out
    cp -r before out
    : >out/mlp.json
    train -cmn_checkpoint 10
    run -1 grep torn err.txt
    [[ $(json_iterations out/mlp.json) == 12 ]]
}

@test "what is no JSON log is not overwritten" {
    needs jq
    train -cmn_checkpoint 10
    sed -i 's/max_batches=.*/max_batches=12/' mlp.cfg
    echo '[{"name": "mine"}]' >notes
    for begins in '-cmn_checkpoint 10' -clear; do
        rm -f out/mlp.json
        if [[ $begins == -clear ]]; then ln -s ../notes out/mlp.json; else cp notes out/mlp.json; fi
        # shellcheck disable=SC2086  # words
        run -1 train_on 1 mlp.cfg $begins
        [[ $(grep -c 'JSON log out/mlp.json: the file is no JSON log, and would be overwritten: .*another name' train.log) -eq 1 ]]
        run -1 grep '^1, ' train.log
        [[ $(<out/mlp.json) == '[{"name": "mine"}]' && $(<notes) == '[{"name": "mine"}]' ]]
    done
    # A log is replaced through a link as ever.
    echo '[{"epoch":1,"iteration":70}]' >notes
    train -clear -cmn_json out/mlp.json
    [[ -L out/mlp.json && $(json_iterations notes) == '2 4 5 6 8 10 12' ]]
}

@test "a full disk does not end the training: its JSON log stays whole, and lost rows are counted" {
    needs jq
    mkdir tiny
    unshare -m mount -t tmpfs tmpfs tiny 2>/dev/null || skip 'this user cannot mount a small disk'
    train -cmn_checkpoint 2
    # Long enough for the room to come before the end.
    sed -i 's/max_batches=.*/max_batches=400/' mlp.cfg
    cp -r out before
    for later in room none; do
        rm -rf out
        cp -r before out
        status=0
        # shellcheck disable=SC2016  # the inner shell's
        unshare -m bash -c 'mount -t tmpfs -o size=16k tmpfs tiny && cp out/mlp.json tiny/
            later=$1; shift
            "$@" -cmn_report_every 1 >out.txt 2>err.txt &
            if [[ $later == room ]]; then
                until grep -q "rows are dropped until" err.txt || ! kill -0 $!; do sleep 0.02; done
                mount -o remount,size=4m tiny
            fi
            wait $! && status=0 || status=$?
            cp tiny/mlp.json full.json
            exit $status' - $later "${mpiexec[@]}" -n 2 "$DARKNET" classifier train small.data mlp.cfg -cmn -cmn_seed 7 \
            -cmn_checkpoint 200 -cmn_json tiny/mlp.json || status=$?
        cat err.txt
        [[ $(grep -c '^cmn: JSON log tiny/mlp.json: No space left on device; the training continues, and the row is tried again' err.txt) -eq 1 ]]
        [[ $(grep -c '^cmn: JSON log tiny/mlp.json: No space left on device; the training continues, and rows are dropped' err.txt) -eq 1 ]]
        [[ $status -eq 1 ]]
        [[ -s out/mlp$FINAL.weights && -s out/mlp-400.checkpoint ]]
        if [[ $later == room ]]; then
            lost=$(sed -nE 's/^cmn.* JSON log .*: No space left on device: ([0-9]+) rows? (is|are) lost$/\1/p' err.txt)
            jq -e "length == 396 - $lost and .[-1].iteration == 400 and ([.[].iteration] | . == unique)" full.json
        else
            [[ $(grep -c '^cmn.* JSON log tiny/mlp.json: No space left on device: [0-9]* rows are lost$' err.txt) -eq 1 ]]
            jq -e 'length > 6 and .[5].iteration == 10' full.json
        fi
    done
}

@test "a JSON log that is killed while it is cut has its rows" {
    export CMN_DEBUG_CHECKPOINT_KEEP=99
    needs jq
    needs strace
    [[ -z $SAN ]] || skip 'strace and sanitizers do not go together'
    mlp_cfg batch=20 max_batches=10 >mlp.cfg
    train_on 1 mlp.cfg -cmn_report_every 2 -cmn_checkpoint 5
    [[ $(json_iterations out/mlp.json) == '2 4 6 8 10' ]]
    rm out/mlp-10.checkpoint    # rows 6, 8 and 10 are trained anew
    cp -r out before
    killed=0
    for call in 'write 1' 'write 2' 'write 3' 'pwrite64 1' 'ftruncate 1'; do
        rm -r out
        cp -r before out
        status=0
        timeout "$HANG_LIMIT" strace -ff -qq -o trace -P "$PWD/out/mlp.json" -e "inject=${call% *}:signal=KILL:when=${call#* }" \
            "$DARKNET" classifier train small.data mlp.cfg -cmn -cmn_seed 7 -cmn_validate 0 -cmn_report_every 2 \
            -cmn_checkpoint 5 >out.txt 2>err.txt || status=$?
        echo "$call: status $status, $(jq -c '[.[].iteration]' out/mlp.json)"
        ((status != 137)) || killed=$((killed + 1))
        diff <(jq -c '.[:2][]' before/mlp.json) <(jq -c '.[:2][]' out/mlp.json)
        train_on 1 mlp.cfg -cmn_report_every 2 -cmn_checkpoint 5
        [[ $(json_iterations out/mlp.json) == '2 4 6 8 10' ]]
    done
    ((killed)) || skip 'strace cannot kill here'
}

@test "two trainings do not write one JSON log; what an earlier attempt of cmn-run left is no other training" {
    needs jq
    small_data 240 20
    to 1 10
    cp out/mlp.json before
    flock out/mlp.json sleep 600 3>&- &
    holder=$!
    wait_for 'the lock' bash -c '! flock -n out/mlp.json true'
    fails_clearly_on 1 'JSON log out/mlp.json: another training writes it: wait until that has ended, or give this one another cmn_json' \
        classifier train small.data mlp.cfg -cmn -cmn_report_every 5
    cmp before out/mlp.json
    OMPI_CMN_ATTEMPT=2 to 1 10
    # shellcheck disable=SC2046  # process ids
    end_now "$holder" $(pgrep -P "$holder")
    to 1 10
}
