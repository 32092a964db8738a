# shellcheck shell=bash
# The scripts of bench/ share these functions. The variants of a measurement take turns, so that all see the same machine. The caller sets NP and
# WARM before it calls `train`; "$work" is a folder that is removed with the caller.

: "${DARKNET:=$PWD/bin/darknet}"
if [[ -z ${MPIEXEC:-} ]]; then
    MPIEXEC='mpiexec --oversubscribe --bind-to none --mca mpi_yield_when_idle 1'
    [[ $(id -u) -ne 0 ]] || MPIEXEC+=' --allow-run-as-root'
fi
export OPENBLAS_NUM_THREADS=1

repo=$PWD versions=() called="${0#"$PWD/"}${*:+ $*}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# mnist_of N: writes bench.data to the work folder. Its N images are few enough that all are decoded and cached before the warm-up ends.
mnist_of() {
    awk -v n="$1" 'NR % 10 == 1 && ++kept <= n' data/mnist/train.list >"$work/train.list"
    sed -e "s|^train.*|train=$work/train.list|" -e "s|^backup.*|backup=$work/out|" cfg/mnist.data >"$work/bench.data"
}

# train CFG STEPS ARGUMENTS...: trains a classifier, or what `driver` names, for so many steps after the warm-up. The log is log.json.
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

# validate FILE CFG SEED ARGUMENTS...: trains on all of MNIST, and appends the last accuracy in per cent, and the iterations, to the file.
validate() {
    rm -rf "$work/out" "$work/log.json"
    sed "s|^backup.*|backup=$work/out|" cfg/mnist.data >"$work/bench.data"
    # shellcheck disable=SC2086
    $MPIEXEC -n "$NP" "$DARKNET" classifier train "$work/bench.data" "$2" -cmn -cmn_seed "$3" -cmn_report quiet -cmn_json "$work/log.json" \
        "${@:4}" >"$work/output" 2>&1 || return 1
    jq -r 'last | [(10000 * .["validation/main/accuracy"] | round) / 100, .iteration] | @tsv' "$work/log.json" >>"$1"
    echo "seed $3, ${1##*/}: $(tail -n 1 "$1" | cut -f 1) %, $SECONDS s" >&2
}

# Prints why the last training was refused.
refusal() {
    grep -m 1 '^cmn\[rank' "$work/output" || { tail -n 3 "$work/output" | tr '\n' ' '; echo 'status not 0'; }
}

# ms_a_step STEPS: prints the milliseconds of a step of the last training. The first row ends the warm-up; the other rows cover the steps.
ms_a_step() {
    jq -r --argjson steps "$1" '(last.elapsed_time - .[0].elapsed_time) / $steps * 1000' "$work/log.json"
}

# Prints the median of the numbers on the standard input.
median() {
    sort -g | awk '{ x[NR] = $1 } END { m = int((NR + 1) / 2); if (NR) print NR % 2 ? x[m] : (x[m] + x[m + 1]) / 2 }'
}

# Prints the mean of the first numbers on the lines of the standard input.
mean() {
    awk '{ sum += $1 } END { printf "%.2f", sum / NR }'
}

# Prints median, least and most of the first numbers on the lines of the standard input.
three() {
    sort -g | awk '{ x[NR] = $1 } END { m = int((NR + 1) / 2); printf "%.3f (%.3f to %.3f)", NR % 2 ? x[m] : (x[m] + x[m + 1]) / 2, x[1], x[NR] }'
}

# ratios ONE OTHER: prints the first column of the one file as multiples of that in the other, line by line: drift of the machine cancels.
ratios() {
    paste "$1" "$2" | awk '{ print $1 / $(NF / 2 + 1) }'
}

# least ONE OTHER: prints the least first number of the one file as a multiple of that in the other.
least() {
    echo "$(sort -g "$1" | awk 'NR == 1 { print $1 }') $(sort -g "$2" | awk 'NR == 1 { print $1 }')" | awk '{ printf "%.3f", $1 / $2 }'
}

percent() {
    awk '{ printf "%.1f %%", 100 * $1 }'
}

# row COLUMN CELL...: adds a row to the results. The first one has all columns.
row() {
    jq -nc '$ARGS.positional as $of | [range(0; $of | length; 2) | {($of[.]): ($of[. + 1] | tonumber? // .)}] | add' --args -- "$@" >>"$work/rows"
}

# results NAME VARIABLE...: writes bench/results/NAME.json, or NAME.json in the folder RESULTS, and prints its table. The variables are
# those that decide what is measured.
results() {
    local to=${RESULTS:-$repo/bench/results}/$1.json set='' name
    for name in "${@:2}"; do
        [[ -z ${!name-} ]] || set+="$name='${!name}' "
    done
    mkdir -p "${to%/*}"
    {
        git -C "$repo" describe --always --dirty 2>/dev/null || true
        cc --version | sed -n 1p
        "$DARKNET" --version | sed -E '1d; s/^([^0-9]*[0-9.]+).*/\1/'
        printf '%s\n' "${versions[@]}"
    } |
        jq -nrR --slurpfile rows "$work/rows" --arg command "$set$called" --arg date "$(date -u +%F)" \
            --arg processor "$(awk -F': *' '/^model name/ { print $2; exit }' /proc/cpuinfo)" --argjson cores "$(nproc)" \
            --argjson memory "$(awk '/^MemTotal/ { printf "%.0f", $2 / 1048576 }' /proc/meminfo)" --argjson load "$(cut -d ' ' -f 1 /proc/loadavg)" \
            '{$command, $date, machine: {$processor, $cores, $memory, $load}, versions: [inputs | select(. != "")]} |
                "\(tojson[:-1]), \"rows\": [", ($rows | map(tojson) | join(",\n")), "]}"' >"$to"
    rm "$work/rows"
    jq -rf "$repo/bench/table.jq" "$to"
}
