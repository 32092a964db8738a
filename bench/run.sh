#!/usr/bin/env bash
# Measures the speed of the MNIST perceptron on one rank, on ranks that exchange nothing (the communicator dummy is the baseline), and
# on ranks with each communicator. Asserts nothing.
# Usage: make bench [RUNS=5] [STEPS=300] [NP=2]
set -euo pipefail
cd "$(dirname "$0")/.."

RUNS=${RUNS:-5} STEPS=${STEPS:-300} NP=${NP:-2} WARM=60
. bench/common.bash
mnist_of 6000

# run NAME RANKS COMMUNICATOR: appends "iterations/s compute exchange load" to $work/NAME.
run() {
    NP=$2 train cfg/mnist_mlp.cfg "$STEPS" -cmn_communicator "$3" -cmn_verify 0
    # The first row ends the warm-up; the other rows cover STEPS steps.
    jq -r --argjson steps "$STEPS" '
        .[1:] as $rows
        | (($rows | last).elapsed_time - .[0].elapsed_time) as $time
        | def fraction(k): ($rows | map(.[k]) | add / length);
        [$steps / $time, fraction("share/compute"), fraction("share/exchange"), fraction("share/load")]
        | @tsv' "$work/log.json" >>"$work/$1"
}

# column NAME K: prints its median.
column() {
    cut -f "$2" "$work/$1" | median
}

names=(one dummy naive flat two_dimensional shm)
ranks=(1 "$NP" "$NP" "$NP" "$NP" "$NP")
with=(flat dummy naive flat two_dimensional shm)
label=("1 rank" "$NP ranks, no communication" "$NP ranks, naive" "$NP ranks, flat" "$NP ranks, two_dimensional" "$NP ranks, shm")

for ((r = 1; r <= RUNS; r++)); do
    echo "run $r of $RUNS" >&2
    for i in "${!names[@]}"; do
        run "${names[i]}" "${ranks[i]}" "${with[i]}"
    done
done

# epoch RANKS: prints the seconds of an epoch, with first reading, decoding and validation.
epoch() {
    # shellcheck disable=SC2086
    $MPIEXEC -n "$1" "$DARKNET" classifier train cfg/mnist.data cfg/mnist_mlp.cfg -cmn -cmn_epochs 1 \
        -cmn_report quiet -cmn_json "$work/epoch.json" >/dev/null 2>&1
    jq -r 'last | .elapsed_time' "$work/epoch.json"
}

for i in "${!names[@]}"; do
    name=${names[i]} of='' epoch=''
    [[ $name == one ]] || of=$(ratios "$work/$name" "$work/dummy" | median | percent)
    [[ $name != one && $name != shm ]] || epoch=$(epoch "${ranks[i]}")
    row '' "${label[i]}" images/s "$(column "$name" 1 | awk -v n="${ranks[i]}" '{ printf "%.0f", $1 * n * 100 }')" 'of no communication' "$of" \
        compute "$(column "$name" 2 | percent)" exchange "$(column "$name" 3 | percent)" load "$(column "$name" 4 | percent)" 's an epoch' "$epoch"
done
results run RUNS STEPS NP
