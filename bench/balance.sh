#!/usr/bin/env bash
# Measures what cmn_balance gains where a control group gives the last rank PERCENT of a core: steps a second with equal and with balanced
# parts, beside the sum of what the ranks do by themselves. The net is MNIST's perceptron in 24 micro-batches of 50 images. Asserts nothing.
# Usage, as root: make bench-balance [RUNS=5] [STEPS=60] [NP=2] [PERCENT=50] [WARM=40]
set -euo pipefail
cd "$(dirname "$0")/.."

RUNS=${RUNS:-5} STEPS=${STEPS:-60} NP=${NP:-2} WARM=${WARM:-40} PERCENT=${PERCENT:-50}
. bench/common.bash
mnist_of 6000

# The group's period is short, so that each micro-batch is slow, and not one step now and then.
group=
for root in /sys/fs/cgroup/cpu /sys/fs/cgroup; do
    [[ -w $root/cgroup.procs ]] || continue
    mkdir -p "$root/darknet-cmn-slow" 2>/dev/null || continue
    group=$root/darknet-cmn-slow
    if [[ -e $group/cpu.max ]]; then
        echo "$((PERCENT * 100)) 10000" >"$group/cpu.max"
    else
        echo 10000 >"$group/cpu.cfs_period_us"
        echo $((PERCENT * 100)) >"$group/cpu.cfs_quota_us"
    fi
    break
done
[[ -n $group ]] || { echo 'bench-balance: no control group can be made here: run it as root, outside of a container' >&2; exit 2; }
trap 'rmdir "$group"; rm -rf "$work"' EXIT

sed '/^cmn_batch/d; s/^batch=.*/batch=1200\nsubdivisions=24\ncmn_batch=global/' cfg/mnist_mlp.cfg >"$work/mlp.cfg"
printf '%s\n' '#!/bin/sh' "[ \"\$OMPI_COMM_WORLD_RANK\" != \"\$SLOW_RANK\" ] || echo \$\$ >'$group/cgroup.procs'" \
    "exec '$DARKNET' \"\$@\"" >"$work/rank"
chmod +x "$work/rank"
DARKNET=$work/rank
export SLOW_RANK

# steps NAME RANKS SLOW ARGUMENTS...: appends the steps a second of a training whose rank SLOW is slow.
steps() {
    NP=$2 SLOW_RANK=$3 train "$work/mlp.cfg" "$STEPS" -cmn_verify 0 -cmn_exact on "${@:4}"
    ms_a_step "$STEPS" | awk '{ print 1000 / $1 }' >>"$work/$1"
}

for ((r = 1; r <= RUNS; r++)); do
    echo "run $r of $RUNS" >&2
    steps fast 1 none
    steps slow 1 0
    steps equal "$NP" $((NP - 1))
    steps balanced "$NP" $((NP - 1)) -cmn_balance auto
done

for name in fast slow equal balanced; do
    paste "$work/fast" "$work/slow" | awk -v others=$((NP - 1)) '{ print others * $1 + $2 }' >"$work/sum"
    row '' "$name" 'steps a second' "$(three <"$work/$name")" "of the sum of the ranks' own" "$(ratios "$work/$name" "$work/sum" | three)"
done
results balance RUNS STEPS NP PERCENT
