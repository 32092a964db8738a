#!/usr/bin/env bash
# Measures what a large batch costs in accuracy, and what wins it back (docs/use/batch.md): the validation accuracy of the MNIST perceptron
# after the last epoch, at the batch of its cfg, and at BATCH images over all ranks, plain, with cmn_scale_lr=linear, and with cmn_lars.
# Every setting has the same seeds. Asserts nothing.
# Usage: make bench-large-batch [NP=2] [BATCH=2048] [SEEDS='1 2 3'] [ONLY=pattern of settings]
set -euo pipefail

cd "$(dirname "$0")/.."
NP=${NP:-2}
BATCH=${BATCH:-2048}
ONLY=${ONLY:-.*}
read -ra seeds <<<"${SEEDS:-1 2 3}"
. bench/common.bash

of_cfg() {
    sed -n "s/^$1=//p" cfg/mnist_mlp.cfg
}
own=$(of_cfg batch) rate=$(of_cfg learning_rate) epochs=$(of_cfg cmn_epochs)
fifth=$((epochs * 60000 / BATCH / 5)) # iterations

# The fields of a setting are: name | label | batch of all ranks | rate for a batch of the cfg | burn_in | epochs | keys
settings=(
    "own|batch $own, as the cfg says|$own|$rate|0|$epochs|"
    "plain|batch $BATCH, nothing else|$BATCH|$rate|0|$epochs|"
    "linear|linear, no warm-up|$BATCH|$rate|0|$epochs|-cmn_scale_lr linear"
    "warm|linear, burn_in=$fifth|$BATCH|$rate|$fifth|$epochs|-cmn_scale_lr linear"
    "lars|LARS 0.1, burn_in=$((fifth / 2))|$BATCH|$rate|$((fifth / 2))|$epochs|-cmn_lars 0.1"
    "own-long|batch $own, $((2 * epochs)) epochs|$own|$rate|0|$((2 * epochs))|"
    "lars-long|LARS 0.1, burn_in=$((fifth / 2)), $((2 * epochs)) epochs|$BATCH|$rate|$((fifth / 2))|$((2 * epochs))|-cmn_lars 0.1"
    "low|rate 0.05, batch $own|$own|0.05|0|$epochs|"
    "low-plain|rate 0.05, batch $((4 * own)), nothing else|$((4 * own))|0.05|0|$epochs|"
    "low-linear|rate 0.05, batch $((4 * own)), linear|$((4 * own))|0.05|0|$epochs|-cmn_scale_lr linear"
)

# run SEED SETTING: appends the accuracy in per cent, and the iterations, to a file of the setting.
run() {
    local name batch rate burn_in epochs keys
    IFS='|' read -r name _ batch rate burn_in epochs keys <<<"$2"
    sed -e "s/^batch=.*/batch=$batch\nburn_in=$burn_in/; s/^learning_rate=.*/learning_rate=$rate/" \
        -e "s/^cmn_epochs=.*/cmn_epochs=$epochs/" cfg/mnist_mlp.cfg >"$work/net.cfg"
    # cmn_scale_lr=linear scales by the number of ranks. Scaling for another batch of one rank is up to the user, and is done here.
    # The other settings divide the batch of all ranks, which gives the same batch.
    if [[ $keys == *linear* ]]; then
        rate=$(awk -v rate="$rate" -v own="$own" -v one=$((batch / NP)) 'BEGIN { print rate * one / own }')
        sed -i "s/^batch=.*/batch=$((batch / NP))/; s/^learning_rate=.*/learning_rate=$rate/" "$work/net.cfg"
    else
        keys+=' -cmn_batch global'
    fi
    # shellcheck disable=SC2086
    validate "$work/$name" "$work/net.cfg" "$1" $keys || { refusal >&2; exit 1; }
}

for seed in "${seeds[@]}"; do
    for setting in "${settings[@]}"; do
        if [[ ${setting%%|*} =~ ^($ONLY)$ ]]; then
            run "$seed" "$setting"
        fi
    done
done

for setting in "${settings[@]}"; do
    IFS='|' read -r name label _ <<<"$setting"
    [[ ! -f $work/$name ]] ||
        row '' "$label" iterations "$(tail -n 1 "$work/$name" | cut -f 2)" mean "$(mean <"$work/$name")" \
            'each seed' "$(cut -f 1 "$work/$name" | xargs)"
done
SEEDS=${seeds[*]}
results large-batch NP BATCH SEEDS
