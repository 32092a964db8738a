#!/usr/bin/env bash
# What sending less, or waiting less, costs in accuracy: real MNIST, the perceptron (3 epochs) and a convolutional network
# with batch normalisation (1 epoch), the same seeds with every setting; validation accuracy after the last epoch. With the
# communicator flat each rank is a node of its own to the compressors, so that one machine is enough. A setting that refuses to
# work is printed with its reason. Asserts nothing.
# Usage: make bench-accuracy [NP=2] [SEEDS='1 2 3'] [NETS='mnist_mlp mnist_bn'] [COMMUNICATOR=flat] [ONLY=pattern of settings]
set -euo pipefail

cd "$(dirname "$0")/.."
NP=${NP:-2}
COMMUNICATOR=${COMMUNICATOR:-flat}
ONLY=${ONLY:-.}
read -ra seeds <<<"${SEEDS:-1 2 3}"
read -ra nets <<<"${NETS:-mnist_mlp mnist_bn}"
: "${DARKNET:?run this by make bench-accuracy}" "${MPIEXEC:?}"
export OPENBLAS_NUM_THREADS=1

# name | label | keys | the cfg's learning rate is divided by
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

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sed "s|^backup.*|backup=$work/out|" cfg/mnist.data >"$work/bench.data"
mkdir -p "$work/out"

# run NAME KEYS DIVISOR NET SEED: appends the accuracy in per cent to a file of the setting, or notes why it refuses.
run() {
    local to="$work/$4-$1" keys
    [[ ! -f $to.why ]] || return 0
    read -ra keys <<<"$2"
    rm -f "$work"/out/*.weights "$work/log.json"
    awk -F= -v divisor="${3:-1}" '/^learning_rate/ { $0 = "learning_rate=" $2 / divisor } { print }' "cfg/$4.cfg" >"$work/$4.cfg"
    # shellcheck disable=SC2086
    if ! $MPIEXEC -n "$NP" "$DARKNET" classifier train "$work/bench.data" "$work/$4.cfg" -cmn -cmn_communicator "$COMMUNICATOR" \
        -cmn_seed "$5" -cmn_report quiet -cmn_json "$work/log.json" "${keys[@]}" >"$work/output" 2>&1; then
        grep -m 1 '^cmn\[rank' "$work/output" >"$to.why" || { tail -n 3 "$work/output"; echo 'status not 0'; } >"$to.why"
        return
    fi
    jq -r 'last | [(10000 * .["validation/main/accuracy"] | round) / 100, .iteration] | @tsv' "$work/log.json" >>"$to"
    echo "seed $5, $4, $1: $(tail -n 1 "$to" | cut -f 1) %, $SECONDS s" >&2
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

echo "$NP ranks, $COMMUNICATOR, seeds ${seeds[*]}; per cent of the 10 000 validation images"
for net in "${nets[@]}"; do
    printf '\n%-28s %8s %8s %8s %16s   %s\n' "$net, $(tail -n 1 "$work/$net-fp32" | cut -f 2) steps" mean least most 'against fp32' 'each seed'
    base=$(awk '{ s += $1 } END { print s / NR }' "$work/$net-fp32")
    for line in "${chosen[@]}"; do
        IFS='|' read -r name label _ <<<"$line"
        if [[ -f $work/$net-$name.why ]]; then
            printf '%-28s %s\n' "$label" "$(tr '\n' ' ' <"$work/$net-$name.why")"
            continue
        fi
        awk -v label="$label" -v base="$base" '
            { s += $1; if (NR == 1 || $1 < low) low = $1; if (NR == 1 || $1 > high) high = $1; all = all sprintf(" %.2f", $1) }
            END { printf "%-28s %8.2f %8.2f %8.2f %+9.2f points  %s\n", label, s / NR, low, high, s / NR - base, all }' "$work/$net-$name"
    done
done
