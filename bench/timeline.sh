#!/usr/bin/env bash
# What cmn_timeline costs: the MNIST perceptron, and one of 64 units whose steps are so short that any cost shows, each
# with and without. Rows, and with them writings of the file, every WARM steps.
# Asserts nothing. Usage: make bench-timeline [RUNS=9] [STEPS=600] [NP=2]
set -euo pipefail
cd "$(dirname "$0")/.."

RUNS=${RUNS:-9} STEPS=${STEPS:-600} NP=${NP:-2} WARM=60
. bench/common.bash
mnist_of 6000
cp cfg/mnist_mlp.cfg "$work/first.cfg"
sed 's/^output=1000$/output=64/' cfg/mnist_mlp.cfg >"$work/second.cfg"
declare -A cfg=([mlp]=$work/first.cfg [small]=$work/second.cfg) steps=([mlp]=$STEPS [small]=$((STEPS * 10)))

# run NET NAME ARGUMENTS...: appends "ms a step, ms of processor a step" to NET-NAME
run() {
    local net=$1 name=$2 user system
    shift 2
    { TIMEFORMAT='%U %S'; time train "${cfg[$net]}" "${steps[$net]}" -cmn_verify 0 "$@" 2>"$work/errors"; } 2>"$work/time" ||
        { cat "$work/errors" >&2; exit 1; }
    read -r user system <"$work/time"
    echo "$(ms_a_step "${steps[$net]}") $(awk -v t="$user" -v s="$system" -v n="${steps[$net]}" 'BEGIN { print (t + s) / n * 1000 }')" |
        tr ' ' '\t' >>"$work/$net-$name"
}

for ((r = 1; r <= RUNS; r++)); do
    echo "run $r of $RUNS" >&2
    for net in mlp small; do
        run "$net" without
        run "$net" with -cmn_timeline "$work/trace.json"
    done
done

echo "$(machine); $RUNS runs of $STEPS and $((STEPS * 10)) steps, $NP ranks; median (least to most)"
for net in mlp small; do
    for name in without with; do
        echo "$net, $name: ms a step $(cut -f 1 "$work/$net-$name" | three), of processor $(cut -f 2 "$work/$net-$name" | three)"
    done
    for column in 1 2; do
        paste <(cut -f $column "$work/$net-with") <(cut -f $column "$work/$net-without") | awk '{ print $1 / $2 }' |
            { echo "$net, with / without, $([[ $column == 1 ]] && echo time || echo processor): $(three)"; }
    done
done
