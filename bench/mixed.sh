#!/usr/bin/env bash
# Compares the loss of cifar.cfg's net in bf16 with that in 32 bits, on MNIST in colour, with 16 images a step and one seed. Asserts nothing.
# Usage: make bench-mixed [STEPS=400] [EVERY=10] [NP=2] [RATE=0.01]
set -euo pipefail
cd "$(dirname "$0")/.."

STEPS=${STEPS:-400} NP=${NP:-2} WARM=0 EVERY=${EVERY:-10} RATE=${RATE:-0.01}
. bench/common.bash
mnist_of 6000
sed -E "s/^batch=.*/batch=16/; s/^(min|max)_crop=.*/\1_crop=28/; s/^learning_rate=.*/learning_rate=$RATE/; s/^policy=.*/policy=constant/
    s/^max_batches *=/max_batches=/" "$BUILD/../darknet/cfg/cifar.cfg" >"$work/cifar.cfg"

for mixed in off bf16; do
    train "$work/cifar.cfg" "$STEPS" -cmn_verify 0 -cmn_batch global -cmn_mixed "$mixed" -cmn_report_every "$EVERY"
    mv "$work/log.json" "$work/$mixed.json"
done
paste <(jq '.[].iteration' "$work/off.json") <(jq '.[]."main/loss"' "$work/off.json") <(jq '.[]."main/loss"' "$work/bf16.json") |
    while read -r iteration one other; do
        row iteration "$iteration" '32 bits' "$one" cmn_mixed=bf16 "$other"
    done
results mixed STEPS NP RATE
