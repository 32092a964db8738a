#!/usr/bin/env bash
# What it costs to lose nothing: checkpoints, comparisons of the weights, tests for NaN; and clipping,
# an average of the weights. MNIST's small convolutional network and the perceptron. Asserts nothing.
# Usage: make bench-reliability [RUNS=9] [STEPS=600] [NP=2] [WARM=100] [WHAT='clip ema']
set -euo pipefail
cd "$(dirname "$0")/.."

RUNS=${RUNS:-9} STEPS=${STEPS:-600} NP=${NP:-2} WARM=${WARM:-100}
. bench/common.bash
mnist_of 6000

# Nothing; a checkpoint every 100 iterations; the weights compared ten times as often as by default; the test for NaN; clipping
# that never happens, and that happens in each step; the average.
read -ra names <<<"none ${WHAT:-checkpoint verify nonfinite clip clipped ema}"
declare -A keys=(
    [none]='-cmn_verify 0 -cmn_nonfinite ignore'
    [checkpoint]='-cmn_verify 0 -cmn_nonfinite ignore -cmn_checkpoint 100'
    [verify]='-cmn_verify 100 -cmn_nonfinite ignore'
    [nonfinite]='-cmn_verify 0 -cmn_nonfinite stop'
    [clip]='-cmn_verify 0 -cmn_nonfinite ignore -cmn_clip 1000'
    [clipped]='-cmn_verify 0 -cmn_nonfinite ignore -cmn_clip 0.001'
    [ema]='-cmn_verify 0 -cmn_nonfinite ignore -cmn_ema 0.9998'
)

# least NAME OTHER: the shortest of the one, as a part of that of the other
least() {
    echo "$(sort -g "$work/$1" | head -n 1) $(sort -g "$work/$2" | head -n 1)" | awk '{ printf "%.4f", $1 / $2 }'
}

for ((r = 1; r <= RUNS; r++)); do
    echo "run $r of $RUNS" >&2
    for net in conv mlp; do
        for name in "${names[@]}"; do
            # shellcheck disable=SC2086
            train "cfg/mnist_$net.cfg" "$STEPS" ${keys[$name]}
            ms_a_step "$STEPS" >>"$work/$net-$name"
        done
    done
done

echo "$(machine); $RUNS runs of $STEPS steps, $NP ranks; median (least to most)"
for net in conv mlp; do
    for name in "${names[@]}"; do
        echo "$net, $name: ms a step $(three <"$work/$net-$name")"
    done
    for name in "${names[@]:1}"; do
        paste "$work/$net-$name" "$work/$net-none" | awk '{ print $1 / $2 }' |
            { echo "$net, $name / none, time: $(three), least / least $(least "$net-$name" "$net-none")"; }
    done
done
