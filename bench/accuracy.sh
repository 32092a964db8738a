#!/usr/bin/env bash
# Measures what sending less, or waiting less, costs in accuracy: the validation accuracy after the last epoch on MNIST, of the perceptron
# (3 epochs) and of a convolutional network with batch normalisation (1 epoch), with the same seeds in every setting. With the
# communicator flat each rank is a node of its own to the compressors, so one machine is enough. A setting that is refused gets a row
# with the reason. Asserts nothing.
# Usage: make bench-accuracy [NP=2] [SEEDS='1 2 3'] [NETS='mnist_mlp mnist_bn'] [COMMUNICATOR=flat] [ONLY=pattern of settings]
set -euo pipefail

cd "$(dirname "$0")/.."
NP=${NP:-2}
COMMUNICATOR=${COMMUNICATOR:-flat}
ONLY=${ONLY:-.}
read -ra seeds <<<"${SEEDS:-1 2 3}"
read -ra nets <<<"${NETS:-mnist_mlp mnist_bn}"
. bench/common.bash

# The fields of a setting are: name | label | keys | divisor of the cfg's learning rate
settings=(
    'fp32|fp32|'
    'fp16|fp16|-cmn_compress fp16'
    'bf16|bf16|-cmn_compress bf16'
    'powersgd|powersgd rank 4|-cmn_compress powersgd'
    'slow|fp32, learning rate / 4||4'
    'double|double buffering|-cmn_double_buffering 1'
    'double-slow|double buffering, rate / 4|-cmn_double_buffering 1|4'
    'local8|local steps 8|-cmn_local_steps 8'
    'local8-fp16|local steps 8, fp16|-cmn_local_steps 8 -cmn_compress fp16'
    'local32-fp16|local steps 32, fp16|-cmn_local_steps 32 -cmn_compress fp16'
    'local64-fp16|local steps 64, fp16|-cmn_local_steps 64 -cmn_compress fp16'
    'local2-double|local steps 2, double buffering|-cmn_local_steps 2 -cmn_double_buffering 1'
)

# run NAME KEYS DIVISOR NET SEED: appends the accuracy in per cent to a file of the setting, or notes why it refuses.
run() {
    local to="$work/$4-$1" keys
    [[ ! -f $to.why ]] || return 0
    read -ra keys <<<"$2"
    awk -F= -v divisor="${3:-1}" '/^learning_rate/ { $0 = "learning_rate=" $2 / divisor } { print }' "cfg/$4.cfg" >"$work/$4.cfg"
    validate "$to" "$work/$4.cfg" "$5" -cmn_communicator "$COMMUNICATOR" "${keys[@]}" || refusal >"$to.why"
}

chosen=()
for line in "${settings[@]}"; do
    if [[ $line == 'fp32|'* || ${line%%|*} =~ $ONLY ]]; then
        chosen+=("$line")
    fi
done
for seed in "${seeds[@]}"; do
    for net in "${nets[@]}"; do
        for line in "${chosen[@]}"; do
            IFS='|' read -r name _ keys divisor <<<"$line"
            run "$name" "$keys" "$divisor" "$net" "$seed"
        done
    done
done

for net in "${nets[@]}"; do
    base=$(mean <"$work/$net-fp32")
    for line in "${chosen[@]}"; do
        IFS='|' read -r name label _ <<<"$line"
        if [[ -f $work/$net-$name.why ]]; then
            row net "$net" setting "$label" mean "$(<"$work/$net-$name.why")"
            continue
        fi
        mean=$(mean <"$work/$net-$name")
        row net "$net" setting "$label" mean "$mean" 'against fp32' "$(awk -v a="$mean" -v b="$base" 'BEGIN { printf "%+.2f points", a - b }')" \
            'each seed' "$(cut -f 1 "$work/$net-$name" | xargs)" steps "$(tail -n 1 "$work/$net-$name" | cut -f 2)"
    done
done
SEEDS=${seeds[*]}
results accuracy NP COMMUNICATOR SEEDS
