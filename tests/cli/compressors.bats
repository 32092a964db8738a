#!/usr/bin/env bats
# Sending less and waiting less, on one node: what trains, what the first line says of it, and what is refused with which
# reason. Several nodes: tests/hosts/compressors.bats.

load helpers

# See numbers.bats.
# shellcheck disable=SC2034  # read by mlp_cfg
ACTIVATION=tanh

setup() {
    enter_folder
    small_data 500 100
}

# refused PATTERN ARGUMENTS...: one line on 2 ranks, before any training.
refused() {
    local pattern=$1
    shift
    mlp_cfg batch=20 >mlp.cfg
    fails_clearly_on 2 "^cmn\[rank [01]@[^]]+\] .*($pattern)" classifier train small.data mlp.cfg -cmn "$@"
    [[ ! -e out/mlp.json ]]
}

# says PATTERN N ARGUMENTS...: the first line of a training on N ranks that ends well and whose weights are the same on all.
says() {
    local pattern=$1 n=$2
    shift 2
    mlp_cfg batch=20 max_batches=4 >mlp.cfg
    train_on "$n" mlp.cfg -cmn_verify 1 "$@"
    grep -E '^cmn: [0-9]+ ranks? on' train.log
    grep -Eq "^cmn: $n ranks? on 1 node, $pattern" train.log
}

# accuracy: of the training images in the last row, in per cent.
accuracy() {
    jq -r 'last | 100 * .["main/accuracy"] | floor' out/mlp.json
}

# Each pair of keys is in tests/unit/config/pairs.c; here are the reasons that a communicator has on one node.
@test "communicators that cannot do what a key asks for say which ones can" {
    refused 'cmn_compress=fp16 does not go with communicator single_node: .*: use flat' -cmn_compress fp16 -cmn_communicator single_node
    refused 'cmn_local_steps=4 does not go with communicator dummy: it needs a mean' -cmn_local_steps 4 -cmn_communicator dummy
    refused 'communicator two_dimensional .*on one node: nothing is sent.*flat' -cmn_compress bf16 -cmn_communicator two_dimensional
    refused 'communicator hierarchical .*on one node: there is no link.*flat' -cmn_double_buffering 1 -cmn_communicator hierarchical
    refused 'cmn_overlap=on.*naive: it cannot exchange in the background' -cmn_overlap on -cmn_communicator naive
    refused 'cmn_overlap=on.*flat: .*shm, two_dimensional or hierarchical' -cmn_overlap on -cmn_communicator flat
}

@test "the first line says what auto takes" {
    says 'communicator shm \(auto: one node\), fp32, overlap off, batch' 2
    says 'communicator flat \(auto: one node, and shm sends no messages for cmn_compress\), powersgd of rank 4, overlap to be measured' 2 -cmn_compress powersgd
    says 'communicator flat \(auto: one node, and shm sends no messages for cmn_compress\), powersgd of rank 2, overlap on' 2 -cmn_compress powersgd:2 \
        -cmn_overlap on
    says 'communicator shm \(auto: one node\), fp32, averaged every 3 steps' 2 -cmn_local_steps 3
    says 'communicator flat \(auto: one node, and shm sends no messages for cmn_compress\), fp16, averaged every 2 steps, double buffering' 2 -cmn_local_steps 2 \
        -cmn_double_buffering 1 -cmn_compress fp16
}

@test "what measuring has found out is said once, and changes nothing" {
    mlp_cfg batch=20 max_batches=30 >mlp.cfg
    train_on 2 mlp.cfg -cmn_compress powersgd
    [[ $(grep -cE '^cmn: overlap (on, buckets of [0-9.]+ MiB|off): [0-9.]+ ms a step; ' train.log) -eq 1 ]]
    mv "out/mlp$FINAL.weights" measured.weights
    train_on 2 mlp.cfg -cmn_compress powersgd -cmn_overlap off
    run -1 grep -E '^cmn: overlap' train.log
    cmp measured.weights "out/mlp$FINAL.weights"
}

@test "a compressor on one rank changes nothing" {
    mlp_cfg batch=20 max_batches=10 >mlp.cfg
    trained plain 1 mlp.cfg
    for keys in '-cmn_compress powersgd' '-cmn_compress fp16'; do
        # shellcheck disable=SC2086
        train_on 1 mlp.cfg $keys
        assert_close plain.weights "out/mlp$FINAL.weights" 1e-6
    done
}

@test "a row waits for sums of which it can tell: with double buffering, where the first step ends an epoch" {
    small_data 30 10
    mlp_cfg batch=20 max_batches=4 >mlp.cfg
    train_on 2 mlp.cfg -cmn_double_buffering 1
    jq -c 'map([.iteration, ."main/loss"])' out/mlp.json
    jq -e 'map(.iteration) == [2, 3, 4] and all(."main/loss" > 0.1)' out/mlp.json
}

# learns KEYS [LIMIT]: as fp32 does, with other bits; the weights differ by less than LIMIT.
learns() {
    # shellcheck disable=SC2086
    train_on 2 mlp.cfg -cmn_communicator flat -cmn_verify 4 $1
    echo "$1: $(accuracy) %, difference $(difference fp32.weights "out/mlp$FINAL.weights")"
    [[ $(accuracy) -ge 90 ]]
    run -1 cmp -s fp32.weights "out/mlp$FINAL.weights"
    [[ -z ${2:-} ]] || assert_close fp32.weights "out/mlp$FINAL.weights" "$2"
}

@test "every way learns, by flat" {
    mlp_cfg batch=45 max_batches=60 learning_rate=0.05 >mlp.cfg
    trained fp32 2 mlp.cfg -cmn_communicator flat
    [[ $(accuracy) -ge 95 ]]
    learns '-cmn_compress fp16' 1e-5
    learns '-cmn_compress bf16' 1e-4
    learns '-cmn_compress powersgd'
    learns '-cmn_local_steps 4 -cmn_compress powersgd'
    learns '-cmn_double_buffering 1 -cmn_local_steps 4 -cmn_compress bf16'
}

@test "a row says a loss only where the ranks' sums have arrived" {
    mlp_cfg batch=20 max_batches=30 >mlp.cfg
    # An epoch is 12.5 steps, so the ranks meet only at its end.
    for keys in '-cmn_local_steps 100' '-cmn_local_steps 10 -cmn_double_buffering 1'; do
        # shellcheck disable=SC2086
        train_on 2 mlp.cfg $keys
        jq -c '.[] | [.iteration, ."main/loss", ."main/accuracy", ."images/s"]' out/mlp.json
        [[ $(jq -c 'map(.iteration)' out/mlp.json) == '[13,25,30]' ]]
        jq -e 'all(."main/loss" > 0.1 and ."main/accuracy" > 0 and ."images/s" > 0)' out/mlp.json
        rm out/*
    done
    # One step with double buffering: its sums never arrive.
    mlp_cfg batch=20 max_batches=1 >mlp.cfg
    train_on 2 mlp.cfg -cmn_double_buffering 1 -cmn_validate 1
    jq -e 'length == 1 and (.[0] | has("validation/main/loss") and (has("main/loss") or has("main/accuracy") | not))' \
        out/mlp.json
}
