#!/usr/bin/env bash
# demo.sh: trains MNIST on NP ranks and draws the chart. `make demo` prepares what it needs and starts it with
# DARKNET (the program), MPIEXEC (how to start ranks), NP (how many) and, where the cfg's number of epochs is not
# wanted, EPOCHS.
set -euo pipefail

cd "$(dirname "$0")/../.."
darknet=${DARKNET:-bin/darknet}
read -r -a mpiexec <<<"${MPIEXEC:-mpiexec --oversubscribe}"
np=${NP:-2}
results=results/mnist
log=$results/mnist_mlp.json
chart=$results/chart.png

# On a terminal the program shows its table and a progress bar. Elsewhere Darknet's two lines per iteration come
# between the rows, for scripts that read them; a log is easier to read without. Ctrl-C is for the program alone: the
# filter must outlive it to pass on its last words.
readable() {
    if [[ -t 1 ]]; then
        "$@"
    else
        "$@" | (trap '' INT TERM; sed -u -e '/^Loaded: [0-9.]* seconds/d' -e '/^[0-9]*, [0-9.]*: .* images\r*$/d')
    fi
}

mkdir -p "$results"
# What an earlier run left must not pass for this one's.
rm -f "$log" "$chart"

readable "${mpiexec[@]}" -n "$np" "$darknet" classifier train cfg/mnist.data cfg/mnist_mlp.cfg -cmn \
    -cmn_report_every 100 -cmn_chart "$chart" ${EPOCHS:+-cmn_epochs "$EPOCHS"}

accuracy=$(jq -r '[.[]["validation/main/accuracy"] // empty] | last // empty
    | 100 * . | . * 100 | round / 100' "$log")
if [[ -z $accuracy ]]; then
    echo "demo: $log holds no validation accuracy" >&2
    exit 1
fi
echo "validation accuracy $accuracy %; weights, log and chart: $results/mnist_mlp.weights, $log, $chart"
