#!/bin/bash
# Simulates one exchange of gradients between nodes by SimGrid (package libsimgrid-dev), with
# cmn/'s own code, and prints a table: milliseconds of simulated time beside the time that the
# bytes take on the node's link.
#
# GBITS, NODES, RANKS (of a node), NETS ("NAME:MB:TENSORS ..."; resnet50:102:54, yolov4:257:110,
# vgg16:553:16) and BY (algorithms) choose. Many nodes and bytes take hours and some GiB.
set -euo pipefail

gbits=${GBITS:-25} nodes=${NODES:-8} ranks=${RANKS:-1} by=${BY:-pairwise halving ring}
nets=${NETS:-mlp:7.2:3}
build=${BUILD:-build/cpu}/simulate

for program in smpicc smpirun; do
    command -v "$program" >/dev/null || { echo "simulate: $program is not there: install libsimgrid-dev" >&2; exit 2; }
done
mkdir -p "$build"
smpicc -std=gnu11 -O2 -w -Icmn -o "$build/simulate" bench/simulate.c \
    cmn/transports/{sums,rounds,schedule,pairwise}.c cmn/mpi/{call,group}.c \
    cmn/base/{log,fatal,memory,float16,reduce,status,job_stderr}.c -lm

# A fat tree of two levels with full bisection: 16 nodes on a switch, as many links up as down.
platform() { # nodes Gbit/s
    local leaf=$(($1 < 16 ? $1 : 16))
    cat <<XML
<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1"><zone id="world" routing="Full">
<cluster id="fat" prefix="n" suffix="" radical="0-$(($1 - 1))" speed="10Gf" core="$ranks" bw="$2Gbps" lat="5us"
 topology="FAT_TREE" topo_parameters="2;$leaf,$((($1 + leaf - 1) / leaf));1,$leaf;1,1" loopback_bw="100GBps" loopback_lat="0"/>
</zone></platform>
XML
}

printf '| net | Gbit/s | nodes x ranks |'
for a in $by; do printf ' %s ms |' "$a"; done
printf ' link ms |\n'
for gbit in $gbits; do
    for m in $nodes; do
        platform "$m" "$gbit" >"$build/platform.xml"
        for ((i = 0; i < m * ranks; i++)); do echo "n$((i / ranks))"; done >"$build/hosts"
        for net in $nets; do
            IFS=: read -r name mb tensors <<<"$net"
            printf '| %s | %s | %s x %s |' "$name" "$gbit" "$m" "$ranks"
            for a in $by; do
                ms=$(smpirun -np $((m * ranks)) -platform "$build/platform.xml" -hostfile "$build/hosts" \
                    "$build/simulate" --cfg=smpi/simulate-computation:no --cfg=smpi/test:"${POLL:-1e-6}" \
                    --cfg=smpi/grow-injected-times:no --cfg=smpi/bw-factor:0:0.95 --cfg=smpi/lat-factor:0:1 --cfg=smpi/os:0:2e-6:0 --cfg=smpi/ois:0:2e-6:0 \
                    --cfg=smpi/or:0:2e-6:0 --log=root.thres:critical "$mb" "$tensors" "$ranks" "$a" 2>"$build/log") ||
                    { cat "$build/log" >&2; exit 1; }
                printf ' %s |' "$ms"
            done
            awk -v mb="$mb" -v m="$m" -v g="$gbit" 'BEGIN { printf " %.3f |\n", 2 * (m - 1) / m * mb * 8 / g }'
        done
    done
done
