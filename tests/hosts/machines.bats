#!/usr/bin/env bats
# shellcheck disable=SC2030,SC2031,SC2154  # words: helpers.bash; tests are functions that shellcheck takes for subshells
# cmn-run with machines that come and go while a training runs: the list changes, a command finds others, a machine dies and
# comes back, one is asked to end. With cmn_exact the weights are those of one rank that nothing disturbed. The training waits for
# what happens to it: its ranks are slow until then. Where a sanitizer forbids that, it has more images to compute.

load helpers

setup_file() {
    nodes 4
    [[ -z ${cluster_why:-} ]] || return 0
    cd "$BATS_FILE_TMPDIR" || return
    small_data 24000 10
    mlp_cfg batch="$([[ -z $SAN ]] && echo 24 || echo 600)" subdivisions=12 max_batches="${STEPS:-600}" cmn_batch=global cmn_exact=on >mlp.cfg
    timeout "$HANG_LIMIT" "$DARKNET" classifier train small.data mlp.cfg -cmn -cmn_seed 7 -cmn_validate 0 >undisturbed.log 2>&1 ||
        { cat undisturbed.log; return 1; }
}
teardown_file() { cluster_down; }

setup() {
    enter_cluster
    small_data 24000 10
    cp "$BATS_FILE_TMPDIR/mlp.cfg" .
    [[ -n $SAN ]] || slowed SLOW_MS=15
    : >slow
}

teardown() {
    end_all
    for i in 1 2 3 4; do
        cluster_run ip -n "node$i" link set eth0 up 2>/dev/null || true
    done
}

# begin ARGUMENTS...: cmn-run in the background. Sets started.
begin() {
    local words
    cluster_words "$BUILD/bin/cmn-run" -interval 1 "$@" -- \
        "$DARKNET" classifier train small.data mlp.cfg -cmn -cmn_seed 7 -cmn_validate 0 -cmn_checkpoint "$([[ -z $SAN ]] && echo 3 || echo 200)" -cmn_timeout 5
    timeout --kill-after=5 $((400 * SLOW)) "${words[@]}" >run.out 2>run.err 3>&- &
    started=$!
}

event() {
    [[ ! -e cmn-run.log ]] || grep -E "cmn-run\[[0-9]+\] $1 +" cmn-run.log
}

# runs_on HOSTS ATTEMPT: the attempt with this number runs there, and has gone on from a checkpoint unless it is the first.
runs_on() {
    event start | grep "attempt $2, .* -host $1 -n" >/dev/null && { (($2 == 1)) || (($(event resume | wc -l) >= $2 - 1)); } &&
        [[ -n $(find out -name '*.checkpoint') ]]
}

# await WHAT COMMAND...
await() {
    wait_for "$@" || { cat run.err cmn-run.log; return 1; }
}

ends_as_undisturbed() {
    local status=0
    rm slow
    wait "$started" || status=$?
    cat run.err cmn-run.log
    [[ $status -eq 0 ]]
    cmp "$BATS_FILE_TMPDIR/out/mlp.weights" out/mlp.weights
}

no_failure() {
    ! event '(failure|give-up|pause|left)' || false
}

@test "the hostfile changes: 1, 3, 2 and 4 machines, the bits of one rank" {
    local attempt=0 list
    for list in 1 1,2,3 2,3 1,2,3,4; do
        attempt=$((attempt + 1))
        for node in ${list//,/ }; do echo "node$node slots=1"; done >hosts.new
        mv hosts.new hosts
        ((attempt > 1)) || begin -hostfile hosts
        await "machines $list" runs_on "$(sed 's/ slots=/:/' hosts | paste -sd ,)" "$attempt"
    done
    ends_as_undisturbed
    no_failure
}

@test "a command finds another machine, and one that cannot train: the list's mistakes change nothing" {
    echo 'node1 slots=1' >list
    begin -discover 'cat list; [ ! -e hangs ] || sleep 100'
    await 'the first machine' runs_on node1:1 1
    printf 'node1 slots=1\nnode2\n' >list
    await 'the mistake' grep -F ':2: say how many ranks node2 takes: slots=N' run.err
    printf 'node1 slots=1\nnode2 slots=2\nnode7 slots=1\n' >list
    await 'the second machine' runs_on node1:1,node2:2 2
    event gone | grep 'node7:1 cannot be used (.*): it will be asked again$'
    touch hangs # no process of the job outlives it, and the command that has found machines is none
    ends_as_undisturbed
    no_failure
}

@test "a machine dies and comes back: the training moves to it again" {
    begin -hosts node1:1,node2:1
    await 'both machines' runs_on node1:1,node2:1 1
    cluster_run ip -n node2 link set eth0 down
    cluster_kill node2
    await 'the other machine alone' runs_on node1:1 2
    cluster_run ip -n node2 link set eth0 up
    await 'both machines again' runs_on node1:1,node2:1 3
    ends_as_undisturbed
    [[ $(event failure | wc -l) -eq 1 ]]
}

@test "SIGTERM on one machine: the training continues without it, and no attempt counts" {
    begin -hosts node1:1,node2:1,node3:1 -retries 1
    await 'three machines' runs_on node1:1,node2:1,node3:1 1
    cluster_run kill -TERM "$(pid_of 1)"
    await 'two machines' runs_on node1:1,node3:1 2
    event gone | grep 'node2:1 was asked to end: continuing without it'
    ends_as_undisturbed
    no_failure
    [[ $(event start | wc -l) -eq 2 ]]
}

@test "a machine that has come fails twice: the training continues without it" {
    # Another name than that of the program, or it would start itself there.
    cp "$DARKNET" real
    printf '%s\n' '#!/bin/sh' "[ \"\$1\" = cmn ] || exit 3" "exec '$PWD/real' \"\$@\"" >broken
    chmod +x broken
    cluster_differs node2 "$DARKNET" "$PWD/broken"
    echo 'node1 slots=1' >hosts
    begin -hostfile hosts
    await 'the first machine' runs_on node1:1 1
    printf 'node1 slots=1\nnode2 slots=1\n' >hosts
    await 'that it is left out' event gone
    event gone | grep 'node2:1 has come, and 2 attempts with it failed: continuing without it'
    ends_as_undisturbed
    [[ $(event start | wc -l) -eq 4 ]]
}

# random N: a number from 1 to N
random() { echo $((RANDOM % $1 + 1)); }

# How often the training has resumed.
resumes() { event resume | wc -l || true; }

# has_resumed N: it has more than N times.
has_resumed() { (($(resumes) > $1)); }

# Whether a rank that is stopped has another one that notices, and a machine that is left another one to continue on.
are_several() { [[ $(event start | tail -n 1) == *-host\ *,* ]]; }

# One of what happens to machines. A list need not change which of them are used, and a cut may be too short to be noticed.
change() {
    local i node pid list=''
    node=node$(random 4)
    pid=$(pid_of $(($(random 4) - 1)))
    case $(random 6) in
        1 | 2)
            for i in 1 2 3 4; do
                ((RANDOM % 2)) || list+="node$i slots=1\n"
            done
            printf '%b' "${list:-node1 slots=1\n}" >hosts.new
            mv hosts.new hosts
            ;;
        3) [[ -z $pid ]] || cluster_run kill -KILL "$pid" ;;
        4) [[ -z $pid ]] || ! are_several || cluster_run kill -STOP "$pid" ;;
        5) [[ -z $pid ]] || ! are_several || cluster_run kill -TERM "$pid" ;;
        6)
            cluster_run ip -n "$node" link set eth0 down
            sleep "$(random 8)"
            cluster_run ip -n "$node" link set eth0 up
            ;;
    esac
}

@test "machines join, leave, die, are stopped and cut off at random: the bits of one rank" {
    local i before
    RANDOM=${SEED:-1}
    printf 'node%d slots=1\n' 1 2 >hosts
    begin -hostfile hosts -retries 20 -wait 30
    await 'the first attempt' runs_on node1:1,node2:1 1
    for ((i = 1; i <= ${CHANGES:-4}; i++)); do
        before=$(resumes)
        change
        PATIENCE=8 wait_for 'another attempt' has_resumed "$before" || true # not each change is one of what is used
        [[ $(tail -n 1 cmn-run.log) != *' done '* ]] || break
    done
    echo "$i changes, $(event start | wc -l) attempts"
    ends_as_undisturbed
}
