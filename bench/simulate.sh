#!/bin/bash
# Simulates steps of training on many nodes by SimGrid (package libsimgrid-dev), with cmn/'s own exchange. A cell
# has the milliseconds of simulated time, and in brackets the efficiency: the part of them in which the ranks compute or, where a step has
# no computation, the part that the bytes would take on the node's link by themselves.
#
# GBITS, NODES, RANKS (of a node), NETS (see bench/simulate.bash) and BY (algorithms, see bench/simulate.c) choose what is simulated. LOOK
# is how often, in milliseconds, a rank that computes looks after its messages. OVERLAP=0 sums after the computation. ONE=1 simulates one
# rank of each node with its part of the link, instead of RANKS that share the link: that is faster, and on 1024 ranks too good, because
# no rank is held up by another (bench/README.md).
set -euo pipefail

gbits=${GBITS:-25} nodes=${NODES:-8} ranks=${RANKS:-1} by=${BY:-pairwise halving ring}
nets=${NETS:-mlp:3:0:7.2}
here=$ranks parts=1
[[ ${ONE:-0} == 0 ]] || here=1 parts=$ranks
cd "$(dirname "$0")/.."
. bench/common.bash
# shellcheck source=bench/simulate.bash
. bench/simulate.bash

simulation_needs smpicc smpirun
simulation_compile smpicc "$simulations/simulate" -DMPI_Testall=cmn_simulated_testall -Dsched_yield=cmn_simulated_yield

# The platform is a fat tree of two levels with full bisection: 16 nodes are on a switch, which has as many links up as down.
platform() { # nodes Gbit/s
    local leaf=$(($1 < 16 ? $1 : 16))
    cat <<XML
<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1"><zone id="world" routing="Full">
<cluster id="fat" prefix="n" suffix="" radical="0-$(($1 - 1))" speed="10Gf" core="$here" bw="$(awk -v g="$2" -v parts="$parts" 'BEGIN { print 1000 * g / parts }')Mbps" lat="5us"
 topology="FAT_TREE" topo_parameters="2;$leaf,$((($1 + leaf - 1) / leaf));1,$leaf;1,1" loopback_bw="100GBps" loopback_lat="0"/>
</zone></platform>
XML
}

for gbit in $gbits; do
    for m in $nodes; do
        platform "$m" "$gbit" >"$simulations/platform.xml"
        for ((i = 0; i < m * here; i++)); do echo "n$((i / here))"; done >"$simulations/hosts"
        for net in $nets; do
            IFS=: read -r name _ step _ <<<"$net"
            simulation_layers "$net" "$simulations/layers"
            link=$(awk -v m="$m" -v g="$gbit" '{ n += $1 } END { printf "%.3f", 2 * (m - 1) / m * n * 32 / g / 1e6 }' "$simulations/layers")
            awk -v parts="$parts" '{ print int($1 / parts), $2 }' "$simulations/layers" >"$simulations/part"
            cells=()
            for a in $by; do
                computes=$step
                [[ ${OVERLAP:-1} == 1 ]] || computes=0
                cell=$(simulation_run $((m * here)) "$simulations/platform.xml" "$simulations/hosts" "$simulations/part" "$here" \
                    "$a" "$computes" "${LOOK:-1}" 1 |
                    awk -v step="$step" -v link="$link" -v after="$((1 - ${OVERLAP:-1}))" '{ ms = $1 + after * step
                        printf "%.2f (%.0f %%)", ms, 100 * (step > 0 ? step : link) / ms }')
                cells+=("$a$([[ ${OVERLAP:-1} == 1 ]] || echo ', after the computation')" "$cell")
            done
            row net "$name" ranks $((m * ranks)) Gbit/s "$gbit" "${cells[@]}" 'compute ms' "$step" 'link ms' "$link"
        done
    done
done
results simulate NODES RANKS GBITS NETS BY OVERLAP ONE
