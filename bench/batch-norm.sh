#!/usr/bin/env bash
# What cmn_sync_bn costs: cfg/mnist_bn.cfg, three layers of batch normalisation, with it and without. Asserts nothing.
# Usage: make bench-batch-norm [RUNS=9] [STEPS=300] [NP=2] [WARM=60]
set -euo pipefail
cd "$(dirname "$0")/.."

RUNS=${RUNS:-9} STEPS=${STEPS:-300} NP=${NP:-2} WARM=${WARM:-60}
. bench/common.bash
mnist_of 6000

# run NAME ARGUMENTS...: appends "ms a step, of them exchange" to NAME
run() {
    local name=$1
    shift
    train cfg/mnist_bn.cfg "$STEPS" -cmn_verify 0 "$@"
    printf '%s\t%s\n' "$(ms_a_step "$STEPS")" "$(jq -r --argjson steps "$STEPS" \
        '[.[1:][] | [.ranks[].wait] | add / length] | add / $steps * 1000' "$work/log.json")" >>"$work/$name"
}

names=(own all all-by-messages)
for ((r = 1; r <= RUNS; r++)); do
    echo "run $r of $RUNS" >&2
    run own
    run all -cmn_sync_bn 1
    CMN_DEBUG_INTRA=mpi run all-by-messages -cmn_sync_bn 1
done

echo "$(machine); $RUNS runs of $STEPS steps, $NP ranks; median (least to most)"
for name in "${names[@]}"; do
    echo "statistics of $name: ms a step $(cut -f 1 "$work/$name" | three), of them exchange $(cut -f 2 "$work/$name" | three)"
done
for name in "${names[@]:1}"; do
    paste "$work/$name" "$work/own" | awk '{ print $1 / $3 }' | { echo "statistics of $name / own, time: $(three)"; }
done
