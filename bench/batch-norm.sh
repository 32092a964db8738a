#!/usr/bin/env bash
# What cmn_sync_bn costs: cfg/mnist_bn.cfg, three layers of batch normalisation, with it and without, in turn, so that both see the
# same machine. Asserts nothing.
#
#   bench/batch-norm.sh [RUNS=9] [STEPS=300] [NP=2] [WARM=60]
set -euo pipefail
cd "$(dirname "$0")/.."

for pair in "$@"; do
    declare "$pair"
done
RUNS=${RUNS:-9}
STEPS=${STEPS:-300}
NP=${NP:-2}
WARM=${WARM:-60}
IMAGES=6000    # few enough that all are decoded and kept before the warm-up ends
: "${DARKNET:=$PWD/bin/darknet}"
if [[ -z ${MPIEXEC:-} ]]; then
    MPIEXEC='mpiexec --oversubscribe --bind-to none --mca mpi_yield_when_idle 1'
    [[ $(id -u) -ne 0 ]] || MPIEXEC+=' --allow-run-as-root'
fi
export OPENBLAS_NUM_THREADS=1

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
awk -v n="$IMAGES" 'NR % 10 == 1 && ++kept <= n' data/mnist/train.list >"$work/train.list"
sed -e "s|^train.*|train=$work/train.list|" -e "s|^backup.*|backup=$work/out|" cfg/mnist.data >"$work/bench.data"
awk '/^cmn_epochs/ { next } { print }' cfg/mnist_bn.cfg | sed "s/^max_batches=.*/max_batches=$((STEPS + WARM))/" >"$work/bn.cfg"

# run NAME ARGUMENTS...: appends "ms a step, of them exchange" to NAME
run() {
    local name=$1 log="$work/log.json"
    shift
    # shellcheck disable=SC2086
    if ! $MPIEXEC -n "$NP" "$DARKNET" classifier train "$work/bench.data" "$work/bn.cfg" -cmn -cmn_seed 1 -cmn_validate 0 \
        -cmn_verify 0 -cmn_report quiet -cmn_report_every "$WARM" -cmn_json "$log" "$@" >"$work/output" 2>&1; then
        cat "$work/output" >&2
        exit 1
    fi
    # Rows but the first cover the steps: from the end of the warm-up to the end.
    jq -r --argjson steps "$STEPS" '
        [((last.elapsed_time - .[0].elapsed_time) / $steps * 1000),
         ([.[1:][] | [.ranks[].wait] | add / length] | add / $steps * 1000)] | @tsv' "$log" >>"$work/$name"
}

# median, least and most of the numbers that are read
three() {
    sort -g | awk '{ x[NR] = $1 } END { m = int((NR + 1) / 2); printf "%.3f (%.3f to %.3f)", NR % 2 ? x[m] : (x[m] + x[m + 1]) / 2, x[1], x[NR] }'
}

names=(own all all-by-messages)
for ((r = 1; r <= RUNS; r++)); do
    echo "run $r of $RUNS" >&2
    run own
    run all -cmn_sync_bn 1
    run all-by-messages -cmn_sync_bn 1 -cmn_intra mpi
done

echo "machine: $(awk -F': *' '/^model name/ { print $2; exit }' /proc/cpuinfo), $(nproc) cores, load $(cut -d ' ' -f 1 /proc/loadavg); $RUNS runs of $STEPS steps, $NP ranks; median (least to most)"
for name in "${names[@]}"; do
    echo "statistics of $name: ms a step $(cut -f 1 "$work/$name" | three), of them exchange $(cut -f 2 "$work/$name" | three)"
done
for name in "${names[@]:1}"; do
    paste "$work/$name" "$work/own" | awk '{ print $1 / $3 }' | { echo "statistics of $name / own, time: $(three)"; }
done
