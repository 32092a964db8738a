#!/usr/bin/env bats
# shellcheck disable=SC2030,SC2031,SC2154  # refused, job: helpers.bash; tests are functions that shellcheck takes for subshells
# Shapes of the world: numbers of nodes, and of ranks on each. The rank tests run there too, and every communicator sums.

load helpers

setup_file() { nodes 3; }
teardown_file() { cluster_down; }
setup() { enter_cluster; }

# rank_test SHAPE NAME: a program of tests/ranks, whose own tests become lines of output.
rank_test() {
    on "$1" -x CMOCKA_MESSAGE_OUTPUT=TAP -x "RANKS_TAP=$PWD/tap" "$BUILD/tests/ranks/$2" >out 2>err || { cat tap out err; return 1; }
    cat tap
    grep -q '^ok ' tap
    run -1 grep '^not ok' tap
}

everything_on() {
    rank_test "$1" mpi/topology
    rank_test "$1" transports/transports
    rank_test "$1" communicators/communicators
}

@test "1+1" { everything_on 1+1; }

@test "3+2" { everything_on 3+2; }

@test "a node is a host here: ranks on two nodes do not share memory" {
    on 2+2 "$DARKNET" cmn list >/dev/null
    small_data 60 10
    mlp_cfg max_batches=1 >mlp.cfg
    train_on 3+2 mlp.cfg
    grep -q '^cmn: 5 ranks on 2 nodes,' train.log
}

# Every sum is checked by the program itself.
sums_on() {
    local shape=$1
    shift
    on "$shape" "$@" "$EXCHANGE" 100003 3 all >out 2>err || { cat out err; return 1; }
    cat out
    [[ $(grep -c '^flat [0-9]' out) -eq 3 ]]
}

@test "three nodes: 1+1+1, 2+1+2" {
    sums_on 1+1+1
    sums_on 2+1+2
}

@test "ranks dealt out in turn, as Slurm's cyclic distribution does" {
    sums_on 2+2 --map-by node
    sums_on 3+2 --map-by node
    sums_on 2+2+2 --map-by node
}

@test "nobody refuses several nodes but those who say so" {
    cluster_job 3+2
    sort_communicators "${job[@]}"
    for name in "${refused[@]}"; do
        case $name in
            single_node | pure_nccl) ;;
            *) echo "$name refuses"; false ;;
        esac
    done
}

@test "a communicator that refuses two nodes: one line, on one rank" {
    cluster_job 2+2
    sort_communicators "${job[@]}"
    small_data 60 10
    mlp_cfg max_batches=1 >mlp.cfg
    ((${#refused[@]})) || skip 'all communicators work here'
    for name in "${refused[@]}"; do
        fails_clearly "$name cannot be used here" "${job[@]}" "$DARKNET" classifier train small.data mlp.cfg -cmn \
            -cmn_communicator "$name"
    done
}

# The last one: it changes a node.
@test "a /dev/shm too small for Open MPI: it warns, and the sums are right" {
    cluster_shm node2 1m
    sums_on 2+2
    grep 'not enough space for /dev/shm' err
}
