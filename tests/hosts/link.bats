#!/usr/bin/env bats
# shellcheck disable=SC2030,SC2031,SC2154  # job: helpers.bash; tests are functions that shellcheck takes for subshells
# Bytes that cross a node's link in one exchange, by the interface's own counter, against what the head of the
# communicator's file claims.

load helpers

setup_file() { nodes 3; }
teardown_file() { cluster_down; }
setup() { enter_cluster; }

FLOATS=1048576
CALLS=4

# sent_by COMMUNICATOR SHAPE: sets sent to the bytes a call that each node sent, without what TCP sent twice, one number a node. A job without calls
# is taken off: what starting and ending it costs.
sent_by() {
    local calls node i now=() idle=()
    for calls in 0 $CALLS; do
        for node in $cluster_nodes; do
            now+=("$(cluster_payload "$node")")
        done
        on "$2" "${@:3}" "$EXCHANGE" $FLOATS "$calls" "$1" >out 2>err || { cat out err; return 1; }
        [[ $(grep -c "^$1 [0-9]" out) -eq $calls ]]
        i=0
        for node in $cluster_nodes; do
            now[i]=$(($(cluster_payload "$node") - now[i]))
            i=$((i + 1))
        done
        [[ $calls -gt 0 ]] || idle=("${now[@]}")
        [[ $calls -eq 0 ]] || sent=("${now[@]}")
        now=()
    done
    for i in "${!sent[@]}"; do
        sent[i]=$(((sent[i] - idle[i]) / CALLS))
    done
}

# in_n BYTES: as a multiple of n floats of 4 bytes
in_n() {
    awk -v b="$1" -v n=$FLOATS 'BEGIN { printf "%.2f * 4n", b / 4 / n }'
}

# within_claim COMMUNICATOR SHAPE [MPIEXEC'S OPTION...]: each node sends at most 1.1 times 2(M-1)/M * 4n over its link,
# and, as a check of the counters, not less than the 4n(M-1)/M that others cannot do without.
within_claim() {
    local i plus=${2//[0-9]/} nodes
    nodes=$((${#plus} + 1))
    [[ $(sed '/\*\//q' "$REPO/cmn/communicators/$1.c" | tr -d '\n') == *'2(M-1)/M * 4n'* ]]
    sent_by "$@"
    for ((i = 0; i < nodes; i++)); do
        echo "# $1 on $2 ${*:3}: node$((i + 1)) sent $(in_n "${sent[i]}")" >&3
        awk -v b="${sent[i]}" -v n=$FLOATS -v m=$nodes 'BEGIN {
            exit !(b <= 1.1 * 2 * (m - 1) / m * 4 * n && b >= (m - 1) / m * 4 * n) }'
    done
}

show_flat() {
    sent_by flat "$@"
    echo "# flat on $*: node1 sent $(in_n "${sent[0]}")" >&3
}

claims() {
    local name
    for name in hierarchical two_dimensional shm; do
        within_claim "$name" "$@"
    done
    show_flat "$@"
}

@test "3+2" { claims 3+2; }

@test "2+2, ranks dealt out in turn" { claims 2+2 --map-by node; }

@test "three nodes: 2+1+2" { claims 2+1+2; }
