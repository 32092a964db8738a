#!/usr/bin/env bash
# Speed of the MNIST perceptron: one rank, ranks that exchange nothing (communicator dummy: the no-communication baseline), and
# ranks with each communicator, in turn, so that all see the same machine. Medians of RUNS runs. Asserts nothing.
# Usage: make bench [RUNS=5] [STEPS=300] [NP=2]
set -euo pipefail
cd "$(dirname "$0")/.."

RUNS=${RUNS:-5} STEPS=${STEPS:-300} NP=${NP:-2} WARM=60
. bench/common.bash
mnist_of 6000

# run NAME RANKS COMMUNICATOR: appends "iterations/s compute exchange load" to $work/NAME
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

# column NAME K: its median
column() {
    cut -f "$2" "$work/$1" | median
}

# Ratios are taken run by run, then the median: drift of the machine cancels.
ratio() {
    paste <(cut -f 1 "$work/$1") <(cut -f 1 "$work/$2") | awk '{ print $1 / $2 }' | median
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

echo "$(machine); $RUNS runs of $STEPS steps, batch 100 per rank, 1 BLAS thread per rank"
printf '%-28s %8s %10s %11s %9s %9s %9s\n' '' 'it/s' 'images/s' 'of baseline' compute exchange load
for i in "${!names[@]}"; do
    speed=$(column "${names[i]}" 1)
    of='-'
    if [ "$i" -gt 0 ]; then
        of=$(ratio "${names[i]}" dummy | awk '{ printf "%.1f %%", 100 * $1 }')
    fi
    awk -v l="${label[i]}" -v s="$speed" -v n="${ranks[i]}" -v of="$of" -v c="$(column "${names[i]}" 2)" \
        -v e="$(column "${names[i]}" 3)" -v d="$(column "${names[i]}" 4)" 'BEGIN {
            printf "%-28s %8.1f %10.0f %11s %7.1f %% %7.1f %% %7.1f %%\n", l, s, s * n * 100, of, 100 * c, 100 * e, 100 * d }'
done

epoch() {
    # shellcheck disable=SC2086
    $MPIEXEC -n "$1" "$DARKNET" classifier train cfg/mnist.data cfg/mnist_mlp.cfg -cmn -cmn_epochs 1 \
        -cmn_report quiet -cmn_json "$work/epoch.json" >/dev/null 2>&1
    jq -r 'last | .elapsed_time' "$work/epoch.json"
}
echo "one epoch of 60 000 images with first reading, decoding and validation: 1 rank $(epoch 1) s, $NP ranks $(epoch "$NP") s"
