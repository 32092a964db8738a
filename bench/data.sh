#!/usr/bin/env bash
# What decoded images take of a node's memory where NP ranks share one cache (cmn_cache_mb), and where each has its own: they
# work in folders of their own then, so that a name need not be the same image. MNIST, EPOCHS epochs. Asserts nothing.
# Usage: make bench-data [NP=4] [EPOCHS=4] [RUNS=3]
set -euo pipefail
cd "$(dirname "$0")/.."

NP=${NP:-4} EPOCHS=${EPOCHS:-4} RUNS=${RUNS:-3}
. bench/common.bash
sed "s|^train.*|train=$PWD/data/mnist/train.list|; s|^backup.*|backup=$work/out|" cfg/mnist.data >"$work/bench.data"

images=$(wc -l <data/mnist/train.list)
sed -i "s|^data/|$PWD/data/|" "$work/bench.data"
awk -v epochs="$EPOCHS" '/^max_batches|^cmn_epochs/ { next } { print } /^\[net\]/ { print "max_batches=1000000000\ncmn_epochs=" epochs }' \
    cfg/mnist_mlp.cfg >"$work/net.cfg"
for ((i = 0; i < NP; i++)); do
    mkdir "$work/rank$i" && ln -s "$PWD/data" "$work/rank$i/data"
done
# shellcheck disable=SC2016  # expanded by the rank's shell
printf '%s\n' '#!/bin/sh' "echo \$\$ >>'$work/pids'" '[ "$CACHE" != own ] || cd "'"$work"'/rank$OMPI_COMM_WORLD_RANK"' \
    "exec '$DARKNET' \"\$@\"" >"$work/rank"
chmod +x "$work/rank"

# KiB of the memory files of all ranks' caches, each once
cache_kib() {
    local pid fd
    while read -r pid; do
        for fd in /proc/"$pid"/fd/*; do
            [[ $(readlink "$fd" 2>/dev/null || true) != /memfd:cmn-images* ]] || stat -Lc '%d:%i %b' "$fd" 2>/dev/null || true
        done
    done <"$work/pids" | awk '{ blocks[$1] = $2 } END { for (file in blocks) kib += blocks[file] / 2; print int(kib) }'
}

# measure CACHE: appends the most MiB of a training's caches, and its seconds.
measure() {
    local most=0 now start=$EPOCHREALTIME job
    rm -rf "$work/out" "$work/pids" && touch "$work/pids"
    # shellcheck disable=SC2086
    CACHE=$1 $MPIEXEC -n "$NP" "$work/rank" classifier train "$work/bench.data" "$work/net.cfg" -cmn -cmn_seed 1 -cmn_validate 0 \
        -cmn_report quiet -cmn_cache_mb 4096 >"$work/output" 2>&1 &
    job=$!
    while kill -0 $job 2>/dev/null; do
        now=$(cache_kib)
        ((now <= most)) || most=$now
        sleep 0.1
    done
    wait $job || { cat "$work/output" >&2; return 1; }
    awk -v kib="$most" 'BEGIN { print kib / 1024 }' >>"$work/$1-mib"
    awk -v from="$start" -v to="$EPOCHREALTIME" 'BEGIN { print to - from }' >>"$work/$1-seconds"
}

for ((r = 1; r <= RUNS; r++)); do
    echo "run $r of $RUNS" >&2
    measure node
    measure own
done
echo "$(machine); $RUNS runs, $NP ranks, $EPOCHS epochs of $images images; median (least to most)"
for name in node own; do
    echo "$name: MiB of decoded images and their index $(three <"$work/$name-mib"), seconds $(three <"$work/$name-seconds")"
done
