#!/usr/bin/env bats
# shellcheck disable=SC2030,SC2031,SC2154  # usable, job: helpers.bash; tests are functions that shellcheck takes for subshells
# A rank, or what lies on one node alone, goes wrong: the job ends everywhere, and the message names rank and node.

load helpers

setup_file() { nodes 2; }
teardown_file() { cluster_down; }
setup() { enter_cluster; }
teardown() { end_all; }

# No process, no file in any node's /dev/shm. What ends with the job may take a moment after mpiexec.
nothing_left() {
    local i left
    for ((i = 0; i < 600; i++)); do
        left=$(cluster_left; cluster_run find /run/cluster -path '*/shm/*')
        [[ -n $left ]] || return 0
        sleep 0.1
    done
    echo "left: $left"
    return 1
}

# dies COMMUNICATOR SHAPE RANK NODE: that rank is killed inside an exchange of 4 MB. The others end.
dies() {
    local job status=0 over=$((SECONDS + 120 * SLOW))
    echo "$1 on $2, rank $3 dies on $4:"
    cluster_job "$2"
    timeout --kill-after=5 $((120 * SLOW)) \
        "${job[@]}" "$EXCHANGE" 1000003 100000 "$1" die "$3" 4 >out 2>err || status=$?
    sed 's/^/  err: /' err
    echo "status $status"
    [[ $(grep -c "^$1 " out) -ge 4 ]]
    # 137 is that of the rank, too.
    ((status != 0 && status != 124 && SECONDS < over))
    grep -aE "rank $3\b.*(@| node )$4" err
    nothing_left
}

@test "SIGKILL inside each communicator's exchange, in turns of the second rank of the first node and the first of the second" {
    local i
    cluster_job 2+2
    sort_communicators "${job[@]}"
    for i in "${!usable[@]}"; do
        dies "${usable[i]}" 2+2 $((1 + i % 2)) node$((1 + i % 2))
    done
}

# What only the second node meets is printed there, once, and ends all.
only_node2() {
    local pattern=$1
    shift
    cluster_job 2+2
    fails_clearly "^cmn\[rank [23]@node2\] .*$pattern" "${job[@]}" "$DARKNET" classifier train small.data mlp.cfg -cmn \
        -cmn_validate 0 "$@"
    nothing_left
}

@test "another cfg and another .data file on the second node change nothing" {
    small_data 60 10
    mlp_cfg >mlp.cfg
    cluster_job 2+2
    for run in alike apart; do
        "${job[@]}" "$DARKNET" classifier train small.data mlp.cfg -cmn -cmn_seed 7 -cmn_communicator flat >"$run.out" 2>"$run.err" || { cat "$run.err"; false; }
        mv out/mlp.weights "$run.weights"
        mlp_cfg momentum=0.8 >other.cfg
        sed 's/top=2/top=3/' small.data >other.data
        cluster_differs node2 mlp.cfg other.cfg
        cluster_differs node2 small.data other.data
        cluster_job 2+2
    done
    cmp alike.weights apart.weights
}

@test "an image that only the second node cannot read" {
    small_data 60 10
    mlp_cfg >mlp.cfg
    echo 'no image' >broken.png
    cluster_differs node2 "$(head -n 1 train.list)" broken.png
    only_node2 'Cannot load image'
}

# The second node's ranks wait four seconds for the first one's line. On a busy machine that may not do, so one of three times counts.
@test "what both nodes meet is printed once" {
    small_data 60 10
    mlp_cfg >mlp.cfg
    sed -i 's/digit/neverthere/' train.list
    cluster_job 2+2
    for _ in 1 2 3; do
        bad=0
        fails_clearly '^cmn\[rank [01]@node1\] Cannot load image' "${job[@]}" "$DARKNET" classifier train small.data mlp.cfg \
            -cmn -cmn_validate 0 || bad=1
        ((bad)) || break
    done
    ((bad == 0))
}

# The last one: the nodes are of no use afterwards. The options are those that cmn-run gives mpiexec.
@test "a node falls off the network: with keepalive options the job ends on all nodes, and the node is named" {
    read -ra keepalive < <("$BUILD/bin/cmn-run" -dry-run -hosts node1:2,node2:2 -- "$DARKNET" cmn check |
        grep -oE -- '--mca oob_tcp_keepalive_time .* oob_tcp_keepalive_probes [0-9]+')
    [[ ${#keepalive[@]} -eq 9 ]]
    cluster_job 2+2
    timeout --kill-after=5 $((200 * SLOW)) "${job[@]}" "${keepalive[@]}" "$EXCHANGE" 1000003 1000000 shm >out 2>err 3>&- &
    started=$!
    three_calls() { [[ $(wc -l <out) -ge 3 ]]; }
    wait_for 'three exchanges' three_calls
    cluster_run ip -n node2 link set eth0 down
    status=0
    wait "$started" || status=$?
    cat err
    echo "status $status"
    ((status != 124 && status != 137))
    mpiexec_failed $status
    grep -aA 4 'lost communication' err | grep -a 'node2'
    nothing_left
}
