#!/usr/bin/env bash
# memory: what decoded images take of a node's memory where NP ranks share one cache (cmn_cache_mb), and where each has its own:
# they work in folders of their own then, so that a name need not be the same image. MNIST, EPOCHS epochs.
# hosts: three hosts of which the first alone has the images (cmn_data=root): what leaves it in an epoch, and images a second
# against local files. PICTURES copies of PICTURE; the hosts are namespaces of this machine (tests/hosts/cluster.bash).
# Asserts nothing.
# Usage: make bench-data [WHAT='memory hosts'] [NP=4] [EPOCHS=4] [RUNS=3]
#     [PICTURES=240] [PICTURE=file.jpg] [THREADS=4, loaders of a rank] [RATES='none 1gbit 100mbit'] [DELAY=1ms, from host to host]
set -euo pipefail
cd "$(dirname "$0")/.."

WHAT=${WHAT:-memory hosts} NP=${NP:-4} EPOCHS=${EPOCHS:-4} RUNS=${RUNS:-3}
PICTURES=${PICTURES:-240} PICTURE=$(realpath "${PICTURE:?run this by make bench-data}") THREADS=${THREADS:-4}
read -ra rates <<<"${RATES:-none 1gbit 100mbit}"
. bench/common.bash

# ---- memory ----

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

memory() {
    local r name
    for ((r = 1; r <= RUNS; r++)); do
        echo "memory, run $r of $RUNS" >&2
        measure node
        measure own
    done
    echo "$NP ranks, $EPOCHS epochs of $images images:"
    for name in node own; do
        echo "$name: MiB of decoded images and their index $(three <"$work/$name-mib"), seconds $(three <"$work/$name-seconds")"
    done
}

# ---- hosts ----

# shellcheck source=tests/hosts/cluster.bash
. tests/hosts/cluster.bash

# A step takes 24 images of all ranks. So small a network has few gradients: what travels is pictures.
make_pictures() {
    local i
    mkdir "$work/pictures" "$work/empty"
    for ((i = 0; i < PICTURES; i++)); do
        cp "$PICTURE" "$work/pictures/$i.digit-$((i % 10)).jpg"
        echo "$work/pictures/$i.digit-$((i % 10)).jpg"
    done >"$work/pictures.list"
    sed "s|^train=.*|train=$work/pictures.list|" "$work/bench.data" >"$work/pictures.data"
    printf '%s\n' '[net]' height=32 width=32 channels=3 min_crop=32 max_crop=32 batch=24 subdivisions=1 cmn_batch=global \
        threads="$THREADS" learning_rate=0.01 policy=constant momentum=0.9 decay=0.0005 max_batches=MAX \
        '[convolutional]' filters=10 size=3 stride=2 pad=1 activation=leaky '[avgpool]' '[softmax]' >"$work/pictures.cfg"
}

# on_hosts EPOCHS FROM ARGUMENTS...: sets sent, what left node1, and rate, images a second behind the first epoch. FROM: all or root.
on_hosts() {
    local epoch=$((PICTURES / 24)) job root=()
    if [[ $2 == root ]]; then
        cluster_differs node2 "$work/pictures" "$work/empty"
        cluster_differs node3 "$work/pictures" "$work/empty"
        root=(-cmn_data root)
    fi
    sed "s/MAX/$(($1 * epoch))/" "$work/pictures.cfg" >"$work/hosts.cfg"
    rm -rf "$work/out"
    sent=$(cluster_payload node1)
    export CMN_DEBUG_EXCHANGE=pairwise
    cluster_job 1+1+1
    "${job[@]}" "$DARKNET" classifier train "$work/pictures.data" "$work/hosts.cfg" -cmn -cmn_seed 1 -cmn_validate 0 -cmn_report quiet \
        -cmn_communicator flat -cmn_report_every "$epoch" -cmn_json "$work/log.json" \
        "${root[@]}" "${@:3}" >"$work/output" 2>&1 || { cat "$work/output" >&2; return 1; }
    sent=$(($(cluster_payload node1) - sent))
    cluster_agree
    rate=$(jq -r --argjson n "$((PICTURES / 24 * 24 * ($1 - 1)))" 'if length > 1 then $n / (last.elapsed_time - .[0].elapsed_time) else 0 end' \
        "$work/log.json")
}

# limit RATE: and DELAY, where that is set.
limit() {
    local node from=root
    for node in $cluster_nodes; do
        cluster_run tc -n "$node" qdisc del dev eth0 root 2>/dev/null || true
        if [[ -n ${DELAY:-} ]]; then
            cluster_run tc -n "$node" qdisc add dev eth0 root handle 1: netem delay "$DELAY" limit 100000
            from='parent 1:'
        fi
        # shellcheck disable=SC2086  # one word or two
        [[ $1 == none ]] || cluster_run tc -n "$node" qdisc add dev eth0 $from tbf rate "$1" burst 256kb limit 2500kb
    done
}

# against NAME: of the pairs in files NAME-root and NAME-all.
against() {
    echo "$(three <"$work/$1-root") of $(three <"$work/$1-all") with local files, ratio $(paste "$work/$1-root" "$work/$1-all" |
        awk '{ print $1 / $2 }' | three)"
}

hosts() {
    local r rate sent scatter from epochs set local_sent by=() link
    cluster_up 3 || { echo "bench-data: $cluster_why" >&2; return 1; }
    trap 'cluster_down; rm -rf "$work"' EXIT
    make_pictures
    set=$(cat "$work/pictures"/* | wc -c)
    echo "3 hosts with a rank and $THREADS loader threads each, the first has $PICTURES images of $((set / PICTURES)) bytes${DELAY:+; $DELAY from host to host}"
    echo "left the first host, in parts of the files' bytes, without what leaves it with local files:"
    for scatter in shard global; do
        by=()
        for epochs in 1 2; do
            on_hosts "$epochs" all -cmn_scatter "$scatter"
            local_sent=$sent
            on_hosts "$epochs" root -cmn_scatter "$scatter"
            by+=("$(awk -v s="$((sent - local_sent))" -v set="$set" 'BEGIN { print s / set }')")
        done
        awk -v name="$scatter" -v one="${by[0]}" -v two="${by[1]}" 'BEGIN {
            printf "  cmn_scatter=%s: first epoch %.3f, second %.3f\n", name, one, two - one }'
    done
    for ((r = 1; r <= RUNS; r++)); do
        for link in "${rates[@]}"; do
            echo "hosts, run $r of $RUNS, link $link" >&2
            limit "$link"
            for from in all root; do
                on_hosts 3 "$from" -cmn_cache_mb 0
                echo "$rate" >>"$work/$link-$from"
                on_hosts 6 "$from" -cmn_scatter shard
                echo "$rate" >>"$work/$link-cached-$from"
            done
        done
    done
    for link in "${rates[@]}"; do
        echo "link $link, no cache: images/s $(against "$link")"
        echo "link $link, from the second epoch on, from the cache: images/s $(against "$link-cached")"
    done
}

echo "$(machine); $RUNS runs; median (least to most)"
for part in $WHAT; do
    case $part in
        memory | hosts) "$part" ;;
        *) echo "bench-data: WHAT=$part: memory or hosts" >&2; exit 2 ;;
    esac
done
