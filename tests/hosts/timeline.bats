#!/usr/bin/env bats
# One trace of two nodes whose clocks differ: by a thousand seconds, as those of machines that were started at other times.

load helpers

setup_file() { nodes 2; }
teardown_file() { cluster_down; }

setup() {
    command -v jq >/dev/null || skip 'jq is not installed'
    enter_cluster
    small_data 500 50
    cluster_clock node2 1000 || skip 'this kernel has no time namespaces: all nodes have one clock'
    mlp_cfg batch=20 max_batches=40 >mlp.cfg
}

# clocks_agree RANKS ARGUMENTS...: the second node's is known to be 1000 s ahead, with the error that the trace claims. And
# that is taken off its spans: an exchange cannot end anywhere before it has begun everywhere. Of 40 the shortest lasts less
# than a millisecond, so an error above that could hide a fault: the training runs again. Where other programs take the cores away
# for longer each time, what is claimed is still right (tests/ranks/mpi/clock_offset.c knows how small it must be), and far below 1000 s.
clocks_agree() {
    local ranks=$1 times=0
    shift
    while ((times++ < 4)); do
        rm -rf out t.json
        train_on "$ranks" mlp.cfg -cmn_timeline t.json -cmn_overlap off "$@"
        clocks_as_claimed $((${ranks%+*} + ${ranks#*+}))
        ! jq -e '.otherData.clock_error_us < 1000' t.json || break
    done
    jq -e '.otherData.clock_error_us < 1000000' t.json
}

# clocks_as_claimed RANKS
clocks_as_claimed() {
    jq -r --argjson ranks "$1" -f "$REPO/tests/tools/trace.jq" t.json >faults
    cat faults
    [[ ! -s faults ]]
    # shellcheck disable=SC2016
    jq -e '(1e-6 * .otherData.clock_error_us) as $error | [.traceEvents[] | select(.name == "process_labels") | .args.ahead]
        | ., $error, (length > 0 and all(.[]; . - 1000 <= $error and . - 1000 >= -$error))' t.json
    # shellcheck disable=SC2016
    jq -e '.otherData.clock_error_us as $error | [.traceEvents[] | select(.cat == "exchange" and .tid == 1)]
        | group_by(.pid) | map(sort_by(.ts)) | transpose
        | {steps: length, $error, early: (map((map(.ts) | max) - (map(.ts + .dur) | min)) | max)}
        | ., ($error > 0 and .steps == 40 and .early < 2 * $error)' t.json
}

@test "1+1: clocks agree as the trace claims" {
    clocks_agree 1+1 -cmn_communicator flat
    jq -e '.otherData.nodes == 2' t.json
    jq -e '[.traceEvents[] | select(.name == "process_name") | .args.name] == ["rank 0@node1", "rank 1@node2"]' t.json
}

@test "2+2: clocks agree as the trace claims" {
    clocks_agree 2+2 -cmn_communicator two_dimensional
}

@test "exchanges in the background have tracks of their own" {
    CMN_DEBUG_BUCKET_MB=0.01 train_on 2+2 mlp.cfg -cmn_timeline t.json -cmn_communicator hierarchical -cmn_overlap on
    jq -r --argjson ranks 4 -f "$REPO/tests/tools/trace.jq" t.json >faults
    cat faults
    [[ ! -s faults ]]
    # shellcheck disable=SC2016
    jq -e '[.traceEvents[] | select(.cat == "exchange" and .tid > 1)] | length >= 40 and (map(.args.bucket) | unique | length) > 1' t.json
}

@test "a slow rank of another node is named with its node" {
    [[ -z $SAN ]] || skip 'the sanitizers must be loaded first'
    not_offered 'own matrix products'
    slowed SLOW_RANK=2 SLOW_MS=100
    mlp_cfg batch=20 max_batches=13 >slow.cfg
    on 2+2 "$DARKNET" classifier train small.data slow.cfg -cmn \
        -cmn_validate 0 >out.txt 2>err.txt
    cat out.txt err.txt
    grep -E '; straggler: rank 2@node2 \(compute ' out.txt
    jq -e 'all(.[]; .straggler == {rank: 2, host: "node2", by: "compute"})' out/slow.json
}
