#!/usr/bin/env bash
# memory: measures what the decoded images of MNIST take of a node's memory during EPOCHS epochs, where NP ranks share one cache
# (cmn_cache_mb), and where each has its own. For the latter the ranks work in different folders, so a name need not be the same image.
# hosts: measures the seconds until another host has the files of rank 0's host, by cmn_data=scatter and by rsync to a daemon there: FILES
# small ones (images of MNIST) and PICTURES of 1 MB. The hosts are namespaces of this machine (tests/hosts/cluster.bash).
# Asserts nothing.
# Usage: make bench-data [WHAT='memory hosts'] [NP=4] [EPOCHS=4] [RUNS=3] [FILES=20000] [PICTURES=300] [RATE=1gbit]
set -euo pipefail
cd "$(dirname "$0")/.."

WHAT=${WHAT:-memory hosts} NP=${NP:-4} EPOCHS=${EPOCHS:-4} RUNS=${RUNS:-3}
FILES=${FILES:-20000} PICTURES=${PICTURES:-300} RATE=${RATE:-1gbit}
. bench/common.bash

# ---- memory ----

sed "s|^train.*|train=$PWD/data/mnist/train.list|; s|^backup.*|backup=$work/out|" cfg/mnist.data >"$work/bench.data"

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

# Prints the KiB of the memory files of all ranks' caches. Each file counts once.
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

memory() {
    local r name
    for ((r = 1; r <= RUNS; r++)); do
        echo "memory, run $r of $RUNS" >&2
        measure node
        measure own
    done
    for name in node own; do
        row 'a cache for each' "$name" 'MiB of decoded images and their index' "$(three <"$work/$name-mib")" seconds "$(three <"$work/$name-seconds")"
    done
    results data-memory NP EPOCHS RUNS
}

# ---- hosts ----

# shellcheck source=tests/hosts/cluster.bash
. tests/hosts/cluster.bash

# Makes the folders small and large in $work/files, and a list of each.
make_files() {
    local i
    mkdir -p "$work/files/small" "$work/files/large" "$work/cache" "$work/empty"
    head -n "$FILES" data/mnist/train.list | xargs -d '\n' cp -t "$work/files/small/"
    for ((i = 0; i < PICTURES; i++)); do
        { printf 'P6 640 520 255\n' && head -c 998400 /dev/urandom; } >"$work/files/large/$i.digit-$((i % 10)).ppm"
    done
    for i in small large; do
        find "$work/files/$i" -type f >"$work/$i.list"
        sed "s|^train=.*|train=$work/$i.list|" "$work/bench.data" >"$work/$i.data"
    done
    printf '%s\n' '[net]' height=28 width=28 channels=3 batch=2 subdivisions=1 learning_rate=0.01 max_batches=1 \
        '[convolutional]' filters=10 size=3 stride=2 pad=1 activation=leaky '[avgpool]' '[softmax]' >"$work/hosts.cfg"
    printf '%s\n' 'use chroot = no' 'uid = 0' 'gid = 0' '[cache]' "path = $work/cache" 'read only = no' >"$work/rsyncd.conf"
}

# by_rsync SET, by_scatter SET: append the seconds of one transfer.
by_rsync() {
    local start
    rm -rf "$work/cache" && mkdir "$work/cache"
    start=$EPOCHREALTIME
    cluster_on node1 rsync -a "$work/files/$1" rsync://10.77.0.2/cache/
    awk -v from="$start" -v to="$EPOCHREALTIME" 'BEGIN { print to - from }' >>"$work/$1-rsync"
}

by_scatter() {
    local job
    rm -rf "$work/cache" "$work/out" && mkdir "$work/cache"
    cluster_job 1+1
    "${job[@]}" "$DARKNET" classifier train "$work/$1.data" "$work/hosts.cfg" -cmn -cmn_seed 1 -cmn_validate 0 -cmn_cache_mb 0 \
        -cmn_data scatter -cmn_cache_dir "$work/cache" >"$work/output" 2>&1 || { cat "$work/output" >&2; return 1; }
    sed -n 's/^cmn: cmn_data=scatter: sent in \(.*\) s$/\1/p' "$work/output" >>"$work/$1-scatter"
}

hosts() {
    local r set
    cluster_up 2 || { echo "bench-data: $cluster_why" >&2; return 1; }
    trap 'cluster_down; rm -rf "$work"' EXIT
    command -v rsync >/dev/null || { echo 'bench-data: rsync is not installed' >&2; return 1; }
    make_files
    cluster_throttle "$RATE"
    cluster_on node2 rsync --daemon --config="$work/rsyncd.conf"
    for ((r = 1; r <= RUNS; r++)); do
        for set in small large; do
            echo "hosts, run $r of $RUNS, $set files" >&2
            by_rsync "$set"
            by_scatter "$set"
        done
    done
    for set in small large; do
        row files "$(wc -l <"$work/$set.list"), $(du -sb "$work/files/$set" | cut -f 1) bytes" scatter "$(three <"$work/$set-scatter") s" \
            rsync "$(three <"$work/$set-rsync") s" ratio "$(ratios "$work/$set-scatter" "$work/$set-rsync" | three)"
    done
    results data-hosts RUNS RATE
}

for part in $WHAT; do
    case $part in
        memory | hosts) "$part" ;;
        *) echo "bench-data: WHAT=$part: memory or hosts" >&2; exit 2 ;;
    esac
done
