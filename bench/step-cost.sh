#!/usr/bin/env bash
# step-cost.sh WHAT: measures what a key costs a step of MNIST's nets. Asserts nothing.
#
#   batch-norm    cmn_sync_bn: the statistics of three layers over all ranks, in shared memory and by messages
#   exact         cmn_exact in four micro-batches, beside shm, which is the fastest, and flat
#   timeline      cmn_timeline; the steps of the net `small` are so short that any cost shows
#   reliability   checkpoints; comparisons of the weights, ten times as often as by default; the test for NaN; clipping that never happens,
#                 and that happens in each step; an average of the weights
#
# Usage: make bench-WHAT [RUNS=9] [STEPS=300] [NP=2] [WARM=60]
set -euo pipefail
cd "$(dirname "$0")/.."

WHAT=${1:?step-cost.sh batch-norm, exact, timeline or reliability} RUNS=${RUNS:-9} STEPS=${STEPS:-300} NP=${NP:-2} WARM=${WARM:-60}
. bench/common.bash
mnist_of 6000

declare -A factor=([small]=10 [conv5m]=0.05) # of STEPS
same='-cmn_verify 0 -cmn_nonfinite ignore'
# The fields of a variant are: name | keys | a variable of the environment. All are compared with the first one.
case $WHAT in
    batch-norm)
        nets=(bn)
        variants=('off|-cmn_verify 0' 'cmn_sync_bn|-cmn_verify 0 -cmn_sync_bn 1'
            'cmn_sync_bn by messages|-cmn_verify 0 -cmn_sync_bn 1|CMN_DEBUG_INTRA=mpi')
        ;;
    exact)
        nets=(mlp conv conv5m)
        variants=('shm|-cmn_verify 0 -cmn_communicator shm' 'flat|-cmn_verify 0 -cmn_communicator flat -cmn_overlap off'
            'cmn_exact|-cmn_verify 0 -cmn_exact on')
        ;;
    timeline)
        nets=(mlp small)
        variants=('off|-cmn_verify 0' "cmn_timeline|-cmn_verify 0 -cmn_timeline $work/trace.json")
        ;;
    reliability)
        nets=(conv mlp)
        variants=("off|$same" "cmn_checkpoint=100|$same -cmn_checkpoint 100" 'cmn_verify=100|-cmn_verify 100 -cmn_nonfinite ignore'
            'cmn_nonfinite=stop|-cmn_verify 0 -cmn_nonfinite stop' "cmn_clip=1000|$same -cmn_clip 1000" "cmn_clip=0.001|$same -cmn_clip 0.001"
            "cmn_ema|$same -cmn_ema 0.9998")
        ;;
    *) echo "step-cost.sh: $WHAT: batch-norm, exact, timeline or reliability" >&2 && exit 2 ;;
esac

sed 's/^output=1000$/output=64/' cfg/mnist_mlp.cfg >"$work/small.cfg"
for net in bn mlp conv conv5m; do
    if [[ $WHAT == exact ]]; then
        awk '/^(subdivisions|cmn_batch)=/ { next } { print } /^\[net\]/ { print "subdivisions=4\ncmn_batch=global" }' "cfg/mnist_$net.cfg"
    else
        cat "cfg/mnist_$net.cfg"
    fi >"$work/$net.cfg"
done

# measure NET NAME KEYS [VARIABLE=VALUE]: appends ms a step, of the exchange and of the processors to NET-NAME.
measure() {
    local steps user system keys
    steps=$(awk -v steps="$STEPS" -v factor="${factor[$1]:-1}" 'BEGIN { printf "%d", steps * factor }')
    read -ra keys <<<"$3"
    { TIMEFORMAT='%U %S'; time env_train "${4:-}" "$work/$1.cfg" "$steps" "${keys[@]}" 2>"$work/errors"; } 2>"$work/time" ||
        { cat "$work/errors" >&2; exit 1; }
    read -r user system <"$work/time"
    jq -r --argjson n "$steps" --argjson processors "$user" --argjson more "$system" \
        '[last.elapsed_time - .[0].elapsed_time, ([.[1:][] | [.ranks[].wait] | add / length] | add),
            $processors + $more] | map(. / $n * 1000) | @tsv' \
        "$work/log.json" >>"$work/$1-$2"
}

env_train() {
    [[ -z $1 ]] || local -x "${1?}"
    train "${@:2}"
}

for ((r = 1; r <= RUNS; r++)); do
    echo "run $r of $RUNS" >&2
    for net in "${nets[@]}"; do
        for variant in "${variants[@]}"; do
            IFS='|' read -r name keys variable <<<"$variant"
            measure "$net" "$name" "$keys" "$variable"
        done
    done
done

for net in "${nets[@]}"; do
    first=$work/$net-${variants[0]%%|*}
    for variant in "${variants[@]}"; do
        file=$work/$net-${variant%%|*}
        row net "$net" '' "${variant%%|*}" 'ms a step' "$(three <"$file")" 'of them exchange' "$(cut -f 2 "$file" | three)" \
            'ms of processors' "$(cut -f 3 "$file" | three)" 'time, of the first' "$(ratios "$file" "$first" | three)" \
            'least, of the least' "$(least "$file" "$first")"
    done
done
results "$WHAT" RUNS STEPS NP
