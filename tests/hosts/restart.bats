#!/usr/bin/env bats
# shellcheck disable=SC2030,SC2031,SC2154  # words, took: helpers.bash; tests are functions that shellcheck takes for subshells
# cmn-run on two nodes: one of them is cut off, or all that runs there dies, and the training resumes.

load helpers

setup_file() { nodes 2; }
teardown_file() { cluster_down; }
setup() { enter_cluster; }

teardown() {
    end_all
    cluster_run ip -n node2 link set eth0 up 2>/dev/null || true
}

# prepare SHAPE KEY=VALUE...: ranks that share each batch of 60; 120 steps, without an end of an epoch; undisturbed on SHAPE.
prepare() {
    small_data 24000 10
    mlp_cfg batch=60 max_batches=120 cmn_batch=global "${@:2}" >mlp.cfg
    sed 's/^backup=.*/backup=undisturbed/' small.data >undisturbed.data
    mkdir undisturbed
    on "$1" "$DARKNET" classifier train undisturbed.data mlp.cfg -cmn -cmn_seed 7 -cmn_validate 0 >undisturbed.log 2>&1 ||
        { cat undisturbed.log; return 1; }
}

checkpoints() {
    [[ $(find out -name '*.checkpoint' | wc -l) -ge 2 ]]
}

# await WHAT COMMAND...
await() {
    wait_for "$@" || { cat run.err cmn-run.log; return 1; }
}

# start ARGUMENTS...: cmn-run in the background, until two checkpoints are there. A step takes 0.2 s on the slow link, so that
# the training cannot end before its machine. Sets started.
start() {
    local words
    cluster_throttle 10mbit
    cluster_words "$BUILD/bin/cmn-run" -hosts node1:2,node2:2 "$@" -- \
        "$DARKNET" classifier train small.data mlp.cfg -cmn -cmn_seed 7 -cmn_validate 0 -cmn_checkpoint 10 -cmn_timeout 5
    timeout --kill-after=5 $((400 * SLOW)) "${words[@]}" >run.out 2>run.err 3>&- &
    started=$!
    await 'two checkpoints' checkpoints
}

# ends_well [NODE]: status 0, and nothing left but what Open MPI has in the shared memory of that node.
ends_well() {
    local status=0 i left
    wait "$started" || status=$?
    cat run.err cmn-run.log
    [[ $status -eq 0 ]]
    for ((i = 0; i < 600; i++)); do
        left=$(cluster_left; cluster_run find /run/cluster -path '*/shm/*' ! -path "*/${1:-none}/shm/*"; find out -name '.*')
        [[ -n $left ]] || return 0
        sleep 0.1
    done
    echo "left: $left"
    return 1
}

event() {
    grep -E "cmn-run\[[0-9]+\] $1 +" cmn-run.log
}

@test "a machine dies, and the other continues alone with cmn_exact: the bits of one rank that was not disturbed" {
    prepare 1 subdivisions=6 cmn_exact=on
    start
    cluster_run ip -n node2 link set eth0 down
    cluster_kill node2
    cluster_throttle 10gbit
    ends_well node2
    cluster_shm node2 64m
    event failure
    event gone | grep 'node2:2 .*without it'
    event resume
    [[ $(event start | tail -n 1) == *'-host node1:2 -n 2 '* ]]
    cmp undisturbed/mlp.weights out/mlp.weights
}

# auto could choose another communicator at the second start.
@test "a machine is cut off, and waited for: the same bits in the end" {
    prepare 2+2 cmn_communicator=hierarchical
    start -wait 300
    cluster_run ip -n node2 link set eth0 down
    await 'that node2 is missed' event gone
    cat cmn-run.log
    event failure | grep -E 'rank [23]\b|node2'
    cluster_throttle 10gbit
    event gone | grep 'node2:2 .*waiting'
    cluster_run ip -n node2 link set eth0 up
    # Where its ranks do not end by themselves before mpiexec's daemon kills them, that is left, too.
    ends_well node2
    event back
    [[ $(event start | tail -n 1) == *'-host node1:2,node2:2 -n 4 '* ]]
    cmp undisturbed/mlp.weights out/mlp.weights
}
