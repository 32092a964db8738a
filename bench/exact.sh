#!/usr/bin/env bash
# What cmn_exact costs a step: MNIST's perceptron, small and large convolutional network in four micro-batches, with it, and without
# it by the same communicator and by the fastest one. Asserts nothing.
# Usage: make bench-exact [RUNS=9] [STEPS=200] [NP=2] [WARM=40] [NETS='mlp conv conv5m']
set -euo pipefail
cd "$(dirname "$0")/.."

RUNS=${RUNS:-9} STEPS=${STEPS:-200} NP=${NP:-2} WARM=${WARM:-40} NETS=${NETS:-mlp conv conv5m}
. bench/common.bash
mnist_of 6000

declare -A keys=(
    [shm]='-cmn_communicator shm'
    [flat]='-cmn_communicator flat -cmn_overlap off'
    [exact]='-cmn_exact on'
)
# A step of conv5m takes twenty times as long as one of the others.
declare -A counted=([conv5m]=$((STEPS / 20)))
for net in $NETS; do
    awk '/^(subdivisions|cmn_batch)=/ { next } { print } /^\[net\]/ { print "subdivisions=4\ncmn_batch=global" }' "cfg/mnist_$net.cfg" >"$work/$net.cfg"
done

# least NAME OTHER: the shortest of the one, as a part of that of the other
least() {
    echo "$(sort -g "$work/$1" | head -n 1) $(sort -g "$work/$2" | head -n 1)" | awk '{ printf "%.3f", $1 / $2 }'
}

for ((r = 1; r <= RUNS; r++)); do
    echo "run $r of $RUNS" >&2
    for net in $NETS; do
        for name in shm flat exact; do
            # shellcheck disable=SC2086
            train "$work/$net.cfg" "${counted[$net]:-$STEPS}" -cmn_verify 0 ${keys[$name]}
            ms_a_step "${counted[$net]:-$STEPS}" >>"$work/$net-$name"
        done
    done
done

echo "$(machine); $RUNS runs of $STEPS steps of 4 micro-batches, $NP ranks; median (least to most)"
for net in $NETS; do
    for name in shm flat exact; do
        echo "$net, $name: ms a step $(three <"$work/$net-$name")"
    done
    for name in shm flat; do
        paste "$work/$net-exact" "$work/$net-$name" | awk '{ print $1 / $2 }' |
            { echo "$net, exact / $name, time: $(three), least / least $(least "$net-exact" "$net-$name")"; }
    done
done
