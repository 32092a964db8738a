#!/usr/bin/env bats
# shellcheck disable=SC2154  # mpiexec: helpers.bash
# cmn_timeline, and what rows say about each rank.

load helpers

setup() {
    command -v jq >/dev/null || skip 'jq is not installed'
    enter_folder
    small_data 200 50
    mlp_cfg batch=20 max_batches=10 >mlp.cfg    # 2 ranks: 5 iterations an epoch, 2 epochs; 3 layers
}

# train N CFG ARGUMENTS...: output and messages go to out.txt and err.txt.
train() {
    darknet_on "$1" classifier train small.data "$2" -cmn -cmn_seed 7 "${@:3}" >out.txt 2>err.txt ||
        { cat out.txt err.txt; return 1; }
}

# valid_trace RANKS FILE
valid_trace() {
    jq -r --argjson ranks "$1" -f "$REPO/tests/tools/trace.jq" "$2" >faults
    cat faults
    [[ ! -s faults ]]
}

# says FILE FILTER: the filter is true of the spans, with ranks and tracks from 0 on; `of("kind")` are those of that kind.
says() {
    # shellcheck disable=SC2016
    jq -e 'def of($kind): map(select(.cat == $kind)); [.traceEvents[] | select(.ph == "X")
        | .pid -= 1 | .tid -= 1] | '"$2" "$1"
}

# bats test_tags=alexeyab
@test "the trace is valid, and holds what happened on each rank" {
    for n in 1 3; do
        train $n mlp.cfg -cmn_timeline t.json -cmn_validate 0
        valid_trace $n t.json
        says t.json "[.[].pid] | unique == [range($n)]"
        for ((rank = 0; rank < n; rank++)); do
            says t.json "map(select(.pid == $rank)) | [of(\"step\")[].args.iteration] == [range(1; 11)]
                and [of(\"forward\")[].args.layer] == [range(10) | 0, 1, 2]
                and [of(\"backward\")[].args.layer] == [range(10) | 2, 1, 0] and (of(\"load\") | length) == 10"
        done
        says t.json 'map(.name) | index("forward 1 connected") and index("backward 2 softmax")'
        rm t.json
    done
}

@test "the check of a trace can tell" {
    mlp_cfg batch=20 max_batches=3 >mlp.cfg
    train 2 mlp.cfg -cmn_timeline good.json -cmn_validate 0
    valid_trace 2 good.json
    while IFS= read -r change; do
        echo "$change:"
        jq ".traceEvents |= ($change)" good.json >bad.json
        run -1 valid_trace 2 bad.json
    done <<'END'
map(select(.name != "process_name" or .pid == 1))
map(select(.name != "thread_name" or .pid == 2))
map(select(.pid == 1))
map(if .cat == "load" then .dur = -1 else . end)
map(if .cat == "load" then del(.ts) else . end)
map(if .cat == "load" then del(.tid) else . end)
map(if .cat == "load" then .cat = "loading" else . end)
map(if .cat == "forward" then .name = "layer" else . end)
map(if .cat == "forward" then .args = {} else . end)
map(if .cat == "forward" then .ph = "B" else . end)
map(if .name == "forward 1 connected" then .dur += 1e6 else . end)
map(if .cat == "step" then .dur *= 0.5 else . end)
map(if .pid == 2 then .pid = 3 else . end)
map(.pid -= 1)
map(.tid -= 1)
END
}

@test "a step's spans lie in it in their order" {
    train 2 mlp.cfg -cmn_timeline t.json -cmn_communicator flat -cmn_overlap off
    # shellcheck disable=SC2016
    says t.json 'map(select(.pid == 1)) | . as $all | all(of("step")[]; . as $step
        | [$all[] | select(.cat != "step" and .cat != "wait" and .ts >= $step.ts and .ts + .dur <= $step.ts + $step.dur + 0.01)
           | .cat] == ["load", "forward", "forward", "forward", "backward", "backward", "backward", "exchange", "update"])'
}

@test "subdivisions: every pass is there" {
    mlp_cfg batch=20 subdivisions=4 max_batches=3 >sub.cfg
    train 2 sub.cfg -cmn_timeline t.json -cmn_validate 0
    valid_trace 2 t.json
    says t.json '(of("forward") | length) == 2 * 3 * 4 * 3 and (of("step") | length) == 6'
}

@test "validation and saving are there, and are neither load nor layers" {
    train 2 mlp.cfg -cmn_timeline t.json
    valid_trace 2 t.json
    says t.json '(of("validate") | length) == 4 and (of("forward") | length) == 60'
    if ! pjreddies; then # it saves every 100 iterations
        sed 's/^max_batches=.*/max_batches=102/' mlp.cfg >long.cfg
        train 2 long.cfg -cmn_timeline t.json
    fi
    # What is saved after the last step comes after the trace.
    says t.json '(of("save") | map(.pid)) == [0, 1]'
    # shellcheck disable=SC2016
    says t.json '. as $all | all(of("save")[]; . as $s | all($all | of("load", "step")[];
        .pid != $s.pid or .ts >= $s.ts + $s.dur - 0.01 or .ts + .dur <= $s.ts + 0.01))'
}

@test "cmn_timeline=FILE:STEPS: the latest steps" {
    train 2 mlp.cfg -cmn_timeline t.json:3
    valid_trace 2 t.json
    for rank in 0 1; do
        says t.json "map(select(.pid == $rank)) | [of(\"step\")[].args.iteration] == [8, 9, 10]"
        says t.json "map(select(.pid == $rank)) | (of(\"forward\") | length) == 9 and (of(\"load\") | length) == 3"
    done
    jq -e '.otherData | .first_step == 8 and .last_step == 10 and .nodes == 1 and .clock_error_us == 0' t.json
    grep '^cmn: timeline t.json: steps 8 to 10 of 2 ranks, clocks within 0 us' err.txt
}

@test "the weights are the same with and without" {
    train 2 mlp.cfg
    mv "out/mlp$FINAL.weights" without.weights
    train 2 mlp.cfg -cmn_timeline t.json
    cmp without.weights "out/mlp$FINAL.weights"
}

@test "a file that cannot be written is an error before the training, on every rank" {
    mkdir folder
    fails_clearly_on 3 'timeline missing/t\.json: No such file or directory' classifier train small.data mlp.cfg -cmn -cmn_timeline missing/t.json
    fails_clearly_on 1 'timeline folder: something that is not a file has this name' classifier train small.data mlp.cfg -cmn -cmn_timeline folder
    fails_clearly_on 1 'timeline /dev/null: something that is not a file has this name' classifier train small.data mlp.cfg -cmn -cmn_timeline /dev/null
    # Nor is a file of another kind replaced, or a trace of another program, or a log that a row of an earlier run is in.
    echo '{"displayTimeUnit":"ms","otherData":{"program":"another"},"traceEvents":[]}' >theirs.json
    mkdir -p out
    echo '[{"epoch":1,"iteration":70}]' >out/mlp.json
    for file in small.data theirs.json out/mlp.json; do
        cp "$file" kept
        fails_clearly_on 1 "timeline $file: what is there is no timeline of a training, and would be lost: .*another name" \
            classifier train small.data mlp.cfg -cmn -cmn_timeline $file
        cmp "$file" kept
    done
    echo '[{"epoch":1,"iteration":70}]' | cmp - out/mlp.json
    fails_clearly_on 1 'cmn_json and cmn_timeline name the same file' \
        classifier train small.data mlp.cfg -cmn -cmn_timeline new.json:7 -cmn_json new.json
    [[ ! -e new.json ]]
    [[ -c /dev/null ]]
    run -1 grep -E '^[0-9]+, ' fails.out
    [[ ! -e out/mlp$FINAL.weights ]]
    run -0 find . -name '*.part'
    [[ -z $output ]]
}

# begin N ARGUMENTS...: a training of long epochs that does not end by itself, in the background. Sets job (mpiexec).
begin() {
    small_data 4000 50
    mlp_cfg batch=20 max_batches=100000000 >endless.cfg
    # Time to write the weights between SIGTERM and SIGKILL.
    OMPI_MCA_odls_base_sigkill_timeout=$(on_busy 3) "${mpiexec[@]}" -n "$1" "$DARKNET" classifier train small.data endless.cfg -cmn \
        -cmn_seed 7 -cmn_validate 0 "${@:2}" >out.txt 2>err.txt 3>&- &
    job=$!
}

teardown() {
    [[ -z ${job:-} ]] || kill -KILL "$job" 2>/dev/null || true
}

is_there_or_ended() {
    [[ -e $1 ]] || gone "$job"
}

# await FILE: it is there.
await() {
    wait_for "$1" is_there_or_ended "$1" || return 1
    [[ -e $1 ]] || { cat err.txt; return 1; }
}

# The job ends; sets ended to its status.
ends() {
    job_ended "$job"
    job=
    cat err.txt
}

@test "asked to stop: the trace is written before the end" {
    begin 2 -cmn_timeline t.json:20
    await "out/endless_$ON_THE_WAY.weights"
    rm -f t.json
    kill -s "$(patient_stop)" "$job"
    ends
    valid_trace 2 t.json
    says t.json '(of("step") | length) == 40'
    last=$(sed -n 's/.*the training ends after iteration \([0-9]*\),.*/\1/p' err.txt)
    [[ $(jq .otherData.last_step t.json) -eq $last ]]
}

@test "a rank is killed: the trace of an earlier row is there" {
    begin 2 -cmn_timeline t.json -cmn_report_every 5
    await t.json
    kill -KILL "$(pgrep -P "$job" | tail -n 1)"
    ends
    [[ $ended -ne 0 ]]
    valid_trace 2 t.json
}

@test "a trace that cannot be written any more is a line, and the training goes on" {
    begin 2 -cmn_timeline t.json -cmn_report_every 5
    await t.json
    until rm -f t.json && mkdir t.json; do
        sleep 0.05
    done
    # The longer a trace took, the later is the next.
    wait_for 'the line' grep -q 't.json: Is a directory' err.txt
    await "out/endless_$(pjreddies && echo 2 || echo 1000).weights"
    kill -s "$(patient_stop)" "$job"
    ends
    [[ $(grep -c '^cmn: timeline t.json: Is a directory; the training continues, and the timeline is written again at a later row$' err.txt) -eq 1 ]]
    [[ $(grep -c '^cmn: asked to stop' err.txt) -eq 1 && -s out/endless$FINAL.weights ]]
}

# straggles NAME=VALUE...: 100 ms are more than a busy machine keeps the others from a core.
straggles() {
    slowed SLOW_MS=100 "$@"
    mlp_cfg batch=10 max_batches=14 >slow.cfg    # 6 or 7 iterations an epoch, and a row
    darknet_on 3 classifier train small.data slow.cfg -cmn -cmn_seed 7 -cmn_validate 0 >out.txt 2>err.txt
    cat out.txt err.txt
}

@test "a rank that computes slowly is named, in the table and in the log" {
    not_offered 'own matrix products' # and no library's, which the test slows down
    [[ -z $SAN ]] || skip 'the sanitizers must be loaded first'
    straggles SLOW_RANK=1
    host=$(hostname)
    grep -E "^  ms a step by rank: compute [0-9.]+ [0-9.]+ [0-9.]+, load .*, wait .*; straggler: rank 1@$host \(compute [0-9.]+, others [0-9.]+\)$" out.txt
    jq -e --arg host "$host" 'all(.[]; .straggler == {rank: 1, $host, by: "compute"})' out/slow.json
}

@test "a rank that loads slowly is named" {
    [[ -z $SAN ]] || skip 'the sanitizers must be loaded first'
    straggles SLOW_RANK=0 SLOW_LOADS=1
    grep -E '; straggler: rank 0@.* \(load [0-9.]+, others [0-9.]+\)$' out.txt
    jq -e 'all(.[]; .straggler.rank == 0 and .straggler.by == "load")' out/slow.json
}

@test "each row has every rank's times, and they add up" {
    train 3 mlp.cfg -cmn_report lines
    jq -e 'all(.[]; [.ranks[].rank] == [0, 1, 2] and all(.ranks[]; .host != "" and .compute > 0 and .load >= 0 and .wait >= 0))' out/mlp.json
    # Shares are rank 0's.
    jq -e 'all(.[]; (.ranks[0].compute / .ranks[0].wait) as $r | (."share/compute" / ."share/exchange") as $s
        | $r / $s > 0.999 and $r / $s < 1.001)' out/mlp.json
    [[ $(grep -c '^  ms a step by rank: compute [0-9.]* [0-9.]* [0-9.]*, load' out.txt) -eq 3 ]]
    train 1 mlp.cfg -cmn_report lines
    [[ $(grep -c '^  ms a step: compute [0-9.]*, load [0-9.]*, wait [0-9.]*$' out.txt) -eq 1 ]]
    train 1 mlp.cfg
    grep -q '^1\.00 ' out.txt
    run -1 grep 'ms a step' out.txt
}
