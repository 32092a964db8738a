#!/usr/bin/env bash
# What cmn_timeline costs: the MNIST perceptron, and one of 64 units whose steps are so short that any cost shows, each with
# and without, in turn, so that all see the same machine. Rows, and with them writings of the file, every WARM steps.
# Asserts nothing. Usage: make bench-timeline [RUNS=9] [STEPS=600] [NP=2]
set -euo pipefail

RUNS=${RUNS:-9}
STEPS=${STEPS:-600}
NP=${NP:-2}
WARM=60
IMAGES=6000    # few enough that all are decoded and kept before the warm-up ends
: "${DARKNET:?run this by make bench-timeline}" "${MPIEXEC:?run this by make bench-timeline}"
export OPENBLAS_NUM_THREADS=1

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
awk -v n="$IMAGES" 'NR % 10 == 1 && ++kept <= n' data/mnist/train.list >"$work/train.list"
sed -e "s|^train.*|train=$work/train.list|" -e "s|^backup.*|backup=$work/out|" cfg/mnist.data >"$work/bench.data"
awk '/^cmn_epochs/ { next } { print }' cfg/mnist_mlp.cfg >"$work/mlp.cfg"
sed 's/^output=1000$/output=64/' "$work/mlp.cfg" >"$work/small.cfg"

# run NET NAME ARGUMENTS...: appends "ms a step, ms of processor a step" to NET-NAME
run() {
    local net=$1 name=$2 log="$work/log.json" steps=$STEPS
    shift 2
    [[ $net == mlp ]] || steps=$((STEPS * 10))
    sed -i "s/^max_batches=.*/max_batches=$((steps + WARM))/" "$work/$net.cfg"
    # shellcheck disable=SC2086
    if ! { TIMEFORMAT='%U %S'; time $MPIEXEC -n "$NP" "$DARKNET" classifier train "$work/bench.data" "$work/$net.cfg" -cmn \
        -cmn_seed 1 -cmn_validate 0 -cmn_verify 0 -cmn_report quiet -cmn_report_every "$WARM" -cmn_json "$log" "$@" \
        >"$work/output" 2>&1; } 2>"$work/time"; then
        cat "$work/output" >&2
        exit 1
    fi
    # Rows but the first cover the steps: from the end of the warm-up to the end.
    jq -r --argjson steps "$steps" --arg used "$(<"$work/time")" '
        [((last.elapsed_time - .[0].elapsed_time) / $steps * 1000),
         ($used | split(" ") | (.[0] | tonumber) + (.[1] | tonumber)) / $steps * 1000] | @tsv' "$log" >>"$work/$net-$name"
}

# median, least and most of the numbers that are read
three() {
    sort -g | awk '{ x[NR] = $1 } END { m = int((NR + 1) / 2); printf "%.3f (%.3f to %.3f)", NR % 2 ? x[m] : (x[m] + x[m + 1]) / 2, x[1], x[NR] }'
}

for ((r = 1; r <= RUNS; r++)); do
    echo "run $r of $RUNS" >&2
    for net in mlp small; do
        run "$net" without
        run "$net" with -cmn_timeline "$work/trace.json"
    done
done

echo "machine: $(awk -F': *' '/^model name/ { print $2; exit }' /proc/cpuinfo), $(nproc) cores; $RUNS runs of $STEPS and $((STEPS * 10)) steps, $NP ranks; median (least to most)"
for net in mlp small; do
    for name in without with; do
        echo "$net, $name: ms a step $(cut -f 1 "$work/$net-$name" | three), of processor $(cut -f 2 "$work/$net-$name" | three)"
    done
    for column in 1 2; do
        paste <(cut -f $column "$work/$net-with") <(cut -f $column "$work/$net-without") | awk '{ print $1 / $2 }' |
            { echo "$net, with / without, $([[ $column == 1 ]] && echo time || echo processor): $(three)"; }
    done
done
