#!/usr/bin/env bash
# Speed of the MNIST perceptron: one rank, two ranks that exchange nothing (the ceiling), and two
# ranks with each communicator, in turn, so that all see the same machine. Medians of RUNS runs.
# Asserts nothing. Usage: make bench [RUNS=5] [STEPS=300] [NP=2]
set -euo pipefail

RUNS=${RUNS:-5}
STEPS=${STEPS:-300}
NP=${NP:-2}
WARM=60
IMAGES=6000    # few enough that all are decoded and kept before the warm-up ends
: "${DARKNET:?run this by make bench}" "${MPIEXEC:?run this by make bench}"
export OPENBLAS_NUM_THREADS=1

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
awk -v n="$IMAGES" 'NR % 10 == 1 && ++kept <= n' data/mnist/train.list >"$work/train.list"
sed -e "s|^train.*|train=$work/train.list|" -e "s|^backup.*|backup=$work/out|" cfg/mnist.data >"$work/bench.data"
awk -v steps="$((STEPS + WARM))" '
    /^cmn_epochs/ { next }
    /^max_batches/ { print "max_batches=" steps; next }
    { print }' cfg/mnist_mlp.cfg >"$work/bench.cfg"

# run NAME RANKS COMMUNICATOR: appends "iterations/s compute exchange load" to $work/NAME
run() {
    local log="$work/log.json"
    # shellcheck disable=SC2086
    if ! $MPIEXEC -n "$2" "$DARKNET" classifier train "$work/bench.data" "$work/bench.cfg" -cmn \
        -cmn_communicator "$3" -cmn_seed 1 -cmn_validate 0 -cmn_verify 0 -cmn_report quiet \
        -cmn_report_every "$WARM" -cmn_json "$log" >"$work/output" 2>&1; then
        cat "$work/output" >&2
        echo "bench: $1 failed" >&2
        exit 1
    fi
    # Rows but the first cover STEPS steps: from the end of the warm-up to the end.
    jq -r --argjson steps "$STEPS" '
        [.[] | select(.iteration > '"$WARM"')] as $rows
        | (($rows | last).elapsed_time - .[0].elapsed_time) as $time
        | def share(k): ($rows | map(.[k]) | add / length);
        [$steps / $time, share("share/compute"), share("share/exchange"), share("share/load")]
        | @tsv' "$log" >>"$work/$1"
}

# column K of NAME, median
median() {
    cut -f "$2" "$work/$1" | sort -g | awk '{ x[NR] = $1 } END { m = int((NR + 1) / 2); print NR % 2 ? x[m] : (x[m] + x[m + 1]) / 2 }'
}

# Ratios are taken run by run, then the median: drift of the machine cancels.
ratio() {
    paste <(cut -f 1 "$work/$1") <(cut -f 1 "$work/$2") | awk '{ print $1 / $2 }' | sort -g |
        awk '{ x[NR] = $1 } END { m = int((NR + 1) / 2); print NR % 2 ? x[m] : (x[m] + x[m + 1]) / 2 }'
}

names=(one dummy naive flat two_dimensional shm)
ranks=(1 "$NP" "$NP" "$NP" "$NP" "$NP")
with=(flat dummy naive flat two_dimensional shm)
label=("1 rank" "$NP ranks, dummy (ceiling)" "$NP ranks, naive" "$NP ranks, flat" "$NP ranks, two_dimensional" "$NP ranks, shm")

for ((r = 1; r <= RUNS; r++)); do
    echo "run $r of $RUNS" >&2
    for i in "${!names[@]}"; do
        run "${names[i]}" "${ranks[i]}" "${with[i]}"
    done
done

echo "machine: $(awk -F': *' '/^model name/ { print $2; exit }' /proc/cpuinfo), $(nproc) cores; $RUNS runs of $STEPS steps, batch 100 per rank, 1 BLAS thread per rank"
printf '%-28s %8s %10s %10s %9s %9s %9s\n' '' 'it/s' 'images/s' 'of ceiling' compute exchange load
for i in "${!names[@]}"; do
    speed=$(median "${names[i]}" 1)
    of='-'
    if [ "$i" -gt 0 ]; then
        of=$(ratio "${names[i]}" dummy | awk '{ printf "%.1f %%", 100 * $1 }')
    fi
    awk -v l="${label[i]}" -v s="$speed" -v n="${ranks[i]}" -v of="$of" -v c="$(median "${names[i]}" 2)" \
        -v e="$(median "${names[i]}" 3)" -v d="$(median "${names[i]}" 4)" 'BEGIN {
            printf "%-28s %8.1f %10.0f %10s %7.1f %% %7.1f %% %7.1f %%\n", l, s, s * n * 100, of, 100 * c, 100 * e, 100 * d }'
done

epoch() {
    # shellcheck disable=SC2086
    $MPIEXEC -n "$1" "$DARKNET" classifier train cfg/mnist.data cfg/mnist_mlp.cfg -cmn -cmn_epochs 1 \
        -cmn_report quiet -cmn_json "$work/epoch.json" >/dev/null 2>&1
    jq -r 'last | .elapsed_time' "$work/epoch.json"
}
echo "one epoch of 60 000 images with first reading, decoding and validation: 1 rank $(epoch 1) s, $NP ranks $(epoch "$NP") s"
