#!/usr/bin/env bash
# Measures training over a slow link: steps a second with each way of sending less or waiting less, beside two nodes that exchange nothing
# (the baseline), and what each sends, without packet headers. The nodes are namespaces of this machine (tests/hosts/cluster.bash) with a
# throttled link. Ratios are taken round by round. A setting that is refused gets a row with the reason. Asserts nothing.
# Usage: make bench-slow-link [RUNS=3] [NETS='mnist_conv5m mnist_mlp'] [RATES='1gbit 100mbit'] [SHAPE=1+1]
#     [COMMUNICATOR=shm] [SECONDS_EACH=2] [ONLY=pattern of settings]
set -euo pipefail

cd "$(dirname "$0")/.."
RUNS=${RUNS:-3}
SHAPE=${SHAPE:-1+1}
COMMUNICATOR=${COMMUNICATOR:-shm}
EACH=${SECONDS_EACH:-2}    # seconds of measured steps that a run aims at
ONLY=${ONLY:-.}
IMAGES=2000                  # few enough that all are decoded and kept before the warm-up ends
read -ra nets <<<"${NETS:-mnist_conv5m mnist_mlp}"
read -ra rates <<<"${RATES:-1gbit 100mbit}"
: "${DARKNET:?run this by make bench-slow-link}" "${BUILD:?}"
. bench/common.bash

# The fields of a setting are: name | label | steps between two exchanges | roughly what a step sends, as a part of fp32, which only
# decides how many steps are run | keys
settings=(
    'baseline|no communication|1|0|'
    'off|fp32, no overlap|1|1|-cmn_overlap off'
    'on|fp32, overlap|1|1|-cmn_overlap on'
    'auto|fp32, overlap by auto|1|1|'
    'fp16|fp16, overlap|1|0.5|-cmn_compress fp16 -cmn_overlap on'
    'powersgd|powersgd rank 4, overlap|1|0.02|-cmn_compress powersgd -cmn_overlap on'
    'double|double buffering|1|1|-cmn_double_buffering 1'
    'double-fp16|double buffering, fp16|1|0.5|-cmn_double_buffering 1 -cmn_compress fp16'
    'double-powersgd|double buffering, powersgd 4|1|0.02|-cmn_double_buffering 1 -cmn_compress powersgd'
    'local8|local steps 8|8|0.25|-cmn_local_steps 8'
    'local8-double|local steps 8, double buffering|8|0.13|-cmn_local_steps 8 -cmn_double_buffering 1'
    'local8-fp16|local steps 8, fp16|8|0.12|-cmn_local_steps 8 -cmn_compress fp16'
    'local32|local steps 32|32|0.06|-cmn_local_steps 32'
    'local32-fp16|local steps 32, fp16|32|0.03|-cmn_local_steps 32 -cmn_compress fp16'
    'local64-fp16|local steps 64, fp16|64|0.016|-cmn_local_steps 64 -cmn_compress fp16'
)

# shellcheck source=tests/hosts/cluster.bash
. tests/hosts/cluster.bash
if ! cluster_up 2; then
    echo "bench-slow-link: $cluster_why" >&2
    exit 1
fi
trap 'cluster_down; rm -rf "$work"' EXIT
export CMN_DEBUG_BUCKET_MB=
cluster_job "$SHAPE"

# The list has the same names many times: all are decoded and cached soon, and no epoch ends in the measured time, as ranks with local
# steps would exchange there.
awk -v n="$IMAGES" 'NR % 30 == 1 && ++kept <= n' data/mnist/train.list >"$work/some.list"
for _ in {1..30}; do
    cat "$work/some.list"
done >"$work/train.list"
sed -e "s|^train.*|train=$work/train.list|" -e "s|^backup.*|backup=$work/out|" cfg/mnist.data >"$work/bench.data"
mkdir -p "$work/out"

bits_per_second() {
    case $1 in
        *gbit) echo "${1%gbit}e9" ;;
        *mbit) echo "${1%mbit}e6" ;;
        *) echo "bench-slow-link: RATES has $1; write it as 1gbit or 100mbit" >&2; return 1 ;;
    esac
}

# pilot NET: sets floats, those of the net, and seconds, those of a step without exchange. Fails if the net cannot be trained.
pilot() {
    train pilot "$1" dummy 8 24 || { cat "$work/output" >&2; return 1; }
    seconds=$(jq -r '((last.elapsed_time) - .[0].elapsed_time) / (last.iteration - .[0].iteration)' "$work/log.json")
    floats=$((($(stat -c %s "$work/out/pilot.weights") - 20) / 4))
}

# train NAME NET COMMUNICATOR WARM TOTAL [KEY VALUE...]: trains TOTAL steps, with a row each WARM steps.
train() {
    local CMN_DEBUG_BUCKET_MB=''
    awk -v steps="$5" '
        /^cmn_epochs/ { next }
        /^policy/ { print "policy=constant"; next }
        /^max_batches/ { print "max_batches=" steps; next }
        { print }' "cfg/$2.cfg" >"$work/$1.cfg"
    rm -f "$work/out/$1.weights" "$work/log.json"
    [[ " ${*:6} " != *' -cmn_overlap on '* ]] || CMN_DEBUG_BUCKET_MB=1
    timeout --kill-after=5 300 "${job[@]}" "$DARKNET" classifier train "$work/bench.data" "$work/$1.cfg" -cmn \
        -cmn_communicator "$3" -cmn_seed 1 -cmn_validate 0 -cmn_verify 0 -cmn_report quiet -cmn_report_every "$4" \
        -cmn_json "$work/log.json" "${@:6}" >"$work/output" 2>&1
}

# lengths PERIOD PART RATE: sets warm and steps, the steps before and in the measured time. With local steps a row is written
# when ranks exchange, so both are whole periods. With double buffering, too, the first row comes in the second one.
lengths() {
    read -r warm steps < <(awk -v compute="$seconds" -v bits="$(bits_per_second "$3")" -v n="$floats" -v period="$1" \
        -v part="$2" -v each="$EACH" 'BEGIN {
            step = compute + 32 * n * part / bits
            steps = int(each / step / period + 0.5) * period
            if (steps < period) steps = period
            if (steps < 4) steps = 4
            warm = step > 1 ? 2 : step > 0.1 ? 4 : 24
            if (period > 1) warm = int((warm + period - 1) / period) * period
            if (period == 8 && warm == 8) warm = 16
            print warm, steps }')
}

# run NAME PERIOD PART KEYS NET RATE: appends "steps/s MiB" to a file of the setting, or notes why it refuses.
run() {
    local name=$1 period=$2 net=$5 rate=$6 to="$work/$5-$6-$1" with=$COMMUNICATOR sent=() node keys exchanges
    local warm steps
    [[ ! -f $to.why ]] || return 0
    [[ $name != baseline ]] || with=dummy
    read -ra keys <<<"$4"
    lengths "$period" "$3" "$rate"
    if [[ $name == auto ]]; then
        warm=$((warm > TUNING ? warm : TUNING))
        if awk -v n="$floats" -v bits="$(bits_per_second "$rate")" -v w=$warm 'BEGIN { exit !(w * 32 * n / bits > 15) }'; then
            echo "left out: it measures $TUNING steps first" >"$to.why"
            return
        fi
    fi
    for node in $cluster_nodes; do
        sent+=("$(cluster_payload "$node")")
    done
    if ! train "$name" "$net" "$with" "$warm" $((warm + steps)) "${keys[@]}"; then
        refusal >"$to.why"
        return
    fi
    for node in 1 2; do
        sent[node - 1]=$(($(cluster_payload "node$node") - sent[node - 1]))
    done
    # The start sends the same in each setting, so what the baseline sent is taken off. Local steps end with an exchange.
    [[ $name != baseline ]] || idle=("${sent[@]}")
    exchanges=$(((warm + steps + period - 1) / period))
    jq -r --argjson warm "$warm" --argjson steps "$steps" '
        (last.elapsed_time - (map(select(.iteration == $warm))[0].elapsed_time)) as $time | $steps / $time' "$work/log.json" |
        awk -v a=$((sent[0] - idle[0])) -v b=$((sent[1] - idle[1])) -v d=$((exchanges * period)) '{
            printf "%s\t%.4f\n", $1, (a > b ? a : b) / d / 1048576 }' >>"$to"
}

# rows NET RATE: adds a row for each setting.
rows() {
    local line name label file of
    for line in "${chosen[@]}"; do
        IFS='|' read -r name label _ <<<"$line"
        file="$work/$1-$2-$name"
        if [[ -f $file.why ]]; then
            row net "$1" link "$2" setting "$label" 'of baseline' "$(<"$file.why")"
            continue
        fi
        of=$(ratios "$file" "$work/$1-$2-baseline" | median)
        row net "$1" link "$2" setting "$label" steps/s "$(cut -f 1 "$file" | median | awk '{ printf "%.3g", $1 }')" \
            'of baseline' "$(awk -v of="$of" 'BEGIN { printf "%.0f %%", 100 * of }')" \
            'MiB sent a step' "$(cut -f 2 "$file" | median | awk '{ if ($1 >= 0.0005) printf $1 < 1 ? "%.3f" : "%.1f", $1 }')"
    done
}

TUNING=24    # steps that `auto` measures before it decides (cmn/optimizers/bucket_tuner.h)
chosen=()
for line in "${settings[@]}"; do
    if [[ $line == baseline* || ${line%%|*} =~ $ONLY ]]; then
        chosen+=("$line")
    fi
done
declare -A floats_of seconds_of
for net in "${nets[@]}"; do
    pilot "$net"
    floats_of[$net]=$floats seconds_of[$net]=$seconds
done
for ((r = 1; r <= RUNS; r++)); do
    for rate in "${rates[@]}"; do
        # After a pause, tc lets some bytes go at once, which a real link does not. These are those of 1 ms, and some packets at least.
        cluster_throttle "$rate" "$(awk -v b="$(bits_per_second "$rate")" 'BEGIN { k = b / 8e6; print int(k < 16 ? 16 : k) "kb" }')"
        for net in "${nets[@]}"; do
            echo "round $r of $RUNS: $net at $rate, $SECONDS s" >&2
            floats=${floats_of[$net]} seconds=${seconds_of[$net]}
            for line in "${chosen[@]}"; do
                IFS='|' read -r name _ period part keys <<<"$line"
                run "$name" "$period" "$part" "$keys" "$net" "$rate"
            done
        done
    done
done

for net in "${nets[@]}"; do
    for rate in "${rates[@]}"; do
        rows "$net" "$rate"
    done
done
results slow-link RUNS SHAPE COMMUNICATOR
