#!/usr/bin/env bats
# shellcheck disable=SC2030,SC2031,SC2154  # usable: helpers.bash; tests are functions that shellcheck takes for subshells
# Training on several nodes: the weights of one rank, whoever exchanges.

load helpers
load ../cli/upstream

# See numbers.bats.
LIMIT=1e-6
# shellcheck disable=SC2034  # read by mlp_cfg
ACTIVATION=tanh

setup_file() { nodes 8; }
teardown_file() { cluster_down; }

setup() {
    enter_cluster
    small_data 500 50
    mlp_cfg batch=60 >mlp.cfg
}

@test "3+2: each communicator trains as one rank" {
    local name
    trained one 1 mlp.cfg -cmn_batch global
    cluster_job 3+2
    sort_communicators "${job[@]}"
    for name in "${usable[@]}" auto; do
        echo "$name:"
        train_on 3+2 mlp.cfg -cmn_batch global -cmn_communicator "$name" -cmn_verify 1
        grep '^cmn: .* on 2 nodes' train.log
        [[ $(seen "out/mlp$FINAL.weights") -eq 1200 ]]
        assert_close one.weights "out/mlp$FINAL.weights" $LIMIT
        rm "out/mlp$FINAL.weights"
    done
}

# Among more than a few ranks messages are passed on.
@test "16 ranks on 8 nodes: as one rank, by halving and by ring" {
    local shape=2+2+2+2+2+2+2+2 name by
    trained one 1 mlp.cfg -cmn_batch global
    for name in shm hierarchical; do
        for by in halving ring; do
            echo "$name by $by:"
            CMN_DEBUG_EXCHANGE=$by train_on $shape mlp.cfg -cmn_batch global -cmn_communicator $name -cmn_verify 1
            grep "^cmn: 16 ranks on 8 nodes, communicator $name " train.log
            [[ $(seen "out/mlp$FINAL.weights") -eq 1200 ]]
            assert_close one.weights "out/mlp$FINAL.weights" $LIMIT
            rm "out/mlp$FINAL.weights"
        done
    done
}

# The nodes' ranks own other parts of the sums, and find the same norm.
@test "3+2, cmn_clip and cmn_ema: as one rank" {
    train_on 1 mlp.cfg -cmn_batch global -cmn_clip .1 -cmn_ema .9
    mkdir one && mv out/*.weights one
    train_on 3+2 mlp.cfg -cmn_batch global -cmn_clip .1 -cmn_ema .9 -cmn_communicator shm -cmn_verify 1
    assert_close "one/mlp$FINAL.weights" "out/mlp$FINAL.weights" $LIMIT
    assert_close one/mlp_ema.weights out/mlp_ema.weights $LIMIT
    train_on 1 mlp.cfg -cmn_batch global
    assert_far "one/mlp$FINAL.weights" "out/mlp$FINAL.weights" 1e-3
}

# one_rank CFG: one.weights are those of one rank.
one_rank() {
    trained one 1 "$1.cfg" -cmn_batch global -cmn_exact on
}

# as_one_rank CFG SHAPE COMMUNICATOR ARGUMENTS...: the same bits.
as_one_rank() {
    local name=$1
    train_on "$2" "$name.cfg" -cmn_batch global -cmn_exact on -cmn_verify 1 -cmn_communicator "$3" "${@:4}"
    grep -E "^cmn: .* on 2 nodes, communicator $3 \\(.*\\), fp32, sums in a fixed order, overlap .*, batch" train.log
    cmp one.weights "out/$name$FINAL.weights"
    rm "out/$name$FINAL.weights"
}

# ITERATIONS=50 tests/run.sh cli/exact hosts/training: more of them.
# On 3+2 the first node has the micro-batches 0, 1 and 2 of 6; with ranks in turns 0, 2, 4 and 5.
@test "1+1, 2+2 and 3+2, cmn_exact: one rank's weights, by cmp, with each communicator; 3+2 with Adam and an idle rank, too" {
    local iterations=${ITERATIONS:-5}
    mlp_cfg batch=60 subdivisions=6 max_batches="$iterations" >mlp.cfg
    one_rank mlp
    as_one_rank mlp 2+2 two_dimensional
    as_one_rank mlp 3+2 shm
    as_one_rank mlp 3+2 shm -cmn_overlap on -cmn_verify 2
    as_one_rank mlp 1+1 shm -cmn_overlap on -cmn_verify 2
    as_one_rank mlp 3+2 hierarchical
    as_one_rank mlp 3+2 flat
    OMPI_MCA_rmaps_base_mapping_policy=node PRTE_MCA_rmaps_default_mapping_policy=node as_one_rank mlp 3+2 shm
    if pjreddies; then as_one_rank mlp 3+2 shm -cmn_balance auto; fi
    mlp_cfg batch=60 subdivisions=4 max_batches="$iterations" adam=1 learning_rate=.002 >adam.cfg
    one_rank adam
    as_one_rank adam 3+2 shm
    CMN_DEBUG_BUCKET_MB=.01 as_one_rank adam 3+2 shm -cmn_overlap on -cmn_verify 2
}

@test "2+2 and 3+2, cmn_exact with batch normalisation: one rank's weights, by cmp, with each communicator" {
    {
        net_section batch=24 subdivisions=6 max_batches="${ITERATIONS:-4}"
        printf '%s\n' '[convolutional]' filters=6 size=5 stride=2 batch_normalize=1 activation=leaky '[dropout]' probability=.3 \
            '[connected]' output=10 activation=linear '[softmax]'
    } >conv.cfg
    one_rank conv
    as_one_rank conv 2+2 shm -cmn_overlap on -cmn_verify 0
    as_one_rank conv 2+2 hierarchical
    as_one_rank conv 3+2 two_dimensional
    as_one_rank conv 3+2 flat
}

@test "2+1, cmn_sync_bn: the batch's statistics travel beside the gradients, whether those wait or not" {
    net_section batch=50 subdivisions=2 >norm.cfg
    printf '%s\n' '[convolutional]' 'filters=6' 'size=5' 'stride=2' 'pad=1' 'batch_normalize=1' 'activation=tanh' \
        '[connected]' 'output=64' 'batch_normalize=1' 'activation=tanh' '[connected]' 'output=10' 'activation=linear' '[softmax]' >>norm.cfg
    trained one 1 norm.cfg -cmn_batch global
    for keys in '-cmn_overlap off' '-cmn_overlap on' '-cmn_communicator flat'; do
        [[ $keys != *flat ]] || local -x CMN_DEBUG_INTRA=mpi
        # shellcheck disable=SC2086  # keys and their values
        CMN_DEBUG_BUCKET_MB=0.1 train_on 2+1 norm.cfg -cmn_batch global -cmn_sync_bn 1 -cmn_verify 1 $keys
        grep '^cmn: 3 ranks on 2 nodes' train.log
        # The fastest that can: not MPI's own, however fast it was.
        [[ $keys != '-cmn_overlap on'* ]] || grep '^cmn: .*flat cannot overlap' train.log
        # Darknet sums up a batch as floats (tests/cli/batch_norm.bats).
        assert_close one.weights "out/norm$FINAL.weights" 1e-5
    done
    unset CMN_DEBUG_INTRA
    train_on 2+1 norm.cfg -cmn_batch global
    assert_far one.weights "out/norm$FINAL.weights" 1e-3
}

@test "2+2: the weights of unpatched Darknet" {
    not_offered 'unpatched, their weights never change' # those of [connected]
    # shellcheck disable=SC2034  # upstream.bash
    norm=()
    upstream_trains
    as_upstream 2+2
    as_upstream 2+2 -cmn_communicator flat
}

# top_folder: a folder that looks like the project's, with fewer images. What is tested is the text that people
# paste; only the training is shorter.
top_folder() {
    not_offered 'channels=1 of a classifier'
    mkdir -p bin results/mnist data/mnist
    ln -s "$DARKNET" bin/darknet
    ln -s "$BUILD/bin/cmn-run" bin/cmn-run
    ln -s "$REPO/cfg" "$REPO/examples" "$REPO/tests" .
    ln -s "$REPO"/data/mnist/{train,valid,valid.list,labels.txt} data/mnist
    head -n 2000 "$REPO/data/mnist/train.list" >data/mnist/train.list
}

trained_on_two_nodes() {
    timeout "$HANG_LIMIT" bash -euo pipefail pasted >out.txt 2>err.txt || { cat pasted out.txt err.txt; return 1; }
    grep '^cmn: 4 ranks on 2 nodes' err.txt
    [[ $(seen results/mnist/mnist_mlp.weights) -eq 2000 ]]
}

@test "examples/multi-node: the command of the README, with its hostfile" {
    top_folder
    {
        echo ". '$BATS_TEST_DIRNAME/cluster.bash'"
        sed -n '/^bin.cmn-run .* classifier train /{s/.*/cluster_run & -cmn_validate 0 -cmn_epochs 1/p;q}' examples/multi-node/README.md
    } >pasted
    trained_on_two_nodes
}

@test "examples/multi-node: two nodes of one machine" {
    top_folder
    # shellcheck disable=SC2016  # backquotes of the text
    sed -n '/^## Without a second machine/,/^## W/{/^```/,/^```/{/^```/!p}}' examples/multi-node/README.md |
        sed '/darknet/s/$/ -cmn_validate 0 -cmn_epochs 1/' >pasted
    grep cluster_up pasted
    trained_on_two_nodes
    [[ $(tail -n 1 out.txt) -gt 7000000 ]]    # what crossed the link: the gradients of at least one step
}
