# shellcheck shell=bash
# What benchmarks of single steps have in common: variants of one training take turns, so that all see the same machine.
# The caller sets RUNS, STEPS, NP and WARM first; "$work" is a folder that is removed with the caller.

: "${DARKNET:=$PWD/bin/darknet}"
if [[ -z ${MPIEXEC:-} ]]; then
    MPIEXEC='mpiexec --oversubscribe --bind-to none --mca mpi_yield_when_idle 1'
    [[ $(id -u) -ne 0 ]] || MPIEXEC+=' --allow-run-as-root'
fi
export OPENBLAS_NUM_THREADS=1

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# mnist_of N: bench.data in the work folder, with N images: few enough that all are decoded and cached before the warm-up ends.
mnist_of() {
    awk -v n="$1" 'NR % 10 == 1 && ++kept <= n' data/mnist/train.list >"$work/train.list"
    sed -e "s|^train.*|train=$work/train.list|" -e "s|^backup.*|backup=$work/out|" cfg/mnist.data >"$work/bench.data"
}

# train CFG STEPS ARGUMENTS...: trains so many steps after the warm-up, a classifier or a `driver`; the log is log.json.
train() {
    local cfg=$1 steps=$2
    shift 2
    awk -v last="$((steps + WARM))" '/^cmn_epochs/ { next } /^max_batches/ { print "max_batches=" last; next } { print }' \
        "$cfg" >"$work/net.cfg"
    rm -rf "$work/out"
    # shellcheck disable=SC2086
    if ! $MPIEXEC -n "$NP" "$DARKNET" "${driver:-classifier}" train "$work/bench.data" "$work/net.cfg" -cmn -cmn_seed 1 -cmn_validate 0 \
        -cmn_report quiet -cmn_report_every "$WARM" -cmn_json "$work/log.json" "$@" >"$work/output" 2>&1; then
        cat "$work/output" >&2
        return 1
    fi
}

# ms_a_step STEPS: of the last training. The first row ends the warm-up; the other rows cover the steps.
ms_a_step() {
    jq -r --argjson steps "$1" '(last.elapsed_time - .[0].elapsed_time) / $steps * 1000' "$work/log.json"
}

# median of the numbers on standard input
median() {
    sort -g | awk '{ x[NR] = $1 } END { m = int((NR + 1) / 2); if (NR) print NR % 2 ? x[m] : (x[m] + x[m + 1]) / 2 }'
}

# median, least and most of the numbers on standard input
three() {
    sort -g | awk '{ x[NR] = $1 } END { m = int((NR + 1) / 2); printf "%.3f (%.3f to %.3f)", NR % 2 ? x[m] : (x[m] + x[m + 1]) / 2, x[1], x[NR] }'
}

machine() {
    echo "machine: $(awk -F': *' '/^model name/ { print $2; exit }' /proc/cpuinfo), $(nproc) cores, load $(cut -d ' ' -f 1 /proc/loadavg)"
}
