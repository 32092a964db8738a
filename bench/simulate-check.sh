#!/bin/bash
# Compares the simulation with real messages: the same program (bench/simulate.c) runs between nodes that are network namespaces of this
# machine, each of which may send RATE (tests/hosts/cluster.bash), and in SimGrid on a platform with that rate and with the latency that
# was measured there. Asserts nothing.
#
# NODES, RATES (Mbit/s), SIZES (MB) and BY choose what is compared. The least of CALLS steps counts, because other programs on this machine
# make steps longer, never shorter. The rates are low because all nodes share its cores. CONGESTION is TCP's congestion control there: bbr,
# which some machines have, paces a connection by its share while others used the link, and leaves a tenth of the link unused after a round
# of halving has ended.
set -euo pipefail

cd "$(dirname "$0")/.."
nodes=${NODES:-2 4 8} rates=${RATES:-100 400} sizes=${SIZES:-1 4 16} by=${BY:-pairwise halving ring} calls=${CALLS:-7}
. bench/common.bash
# shellcheck source=bench/simulate.bash
. bench/simulate.bash
# shellcheck source=tests/hosts/cluster.bash
. tests/hosts/cluster.bash

simulation_needs smpicc smpirun mpicc
simulation_compile smpicc "$simulations/simulate" -DMPI_Testall=cmn_simulated_testall -Dsched_yield=cmn_simulated_yield
simulation_compile mpicc "$simulations/measure"

# Each node has a link of this rate to a bridge. What comes to the node has no limit, because tc limits only what leaves.
platform() { # nodes Mbit/s latency (us)
    local i j
    printf '%s\n' "<?xml version='1.0'?>" '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">' \
        '<platform version="4.1"><zone id="world" routing="Full">'
    for ((i = 0; i < $1; i++)); do echo "<host id=\"n$i\" speed=\"10Gf\"/>"; done
    for ((i = 0; i < $1; i++)); do echo "<link id=\"up$i\" bandwidth=\"$2Mbps\" latency=\"$3us\"/>"; done
    for ((i = 0; i < $1; i++)); do
        for ((j = 0; j < $1; j++)); do
            [[ $i -eq $j ]] || echo "<route src=\"n$i\" dst=\"n$j\" symmetrical=\"NO\"><link_ctn id=\"up$i\"/></route>"
        done
    done
    echo '</zone></platform>'
}

shortest() {
    sort -g | head -n 1
}

for m in $nodes; do
    cluster_up "$m" || { echo "simulate-check: $cluster_why" >&2; exit 1; }
    trap 'cluster_down; rm -rf "$work"' EXIT
    for ((i = 1; i <= m; i++)); do
        cluster_run ip netns exec "node$i" sysctl -qw net.ipv4.tcp_congestion_control="${CONGESTION:-reno}"
    done
    shape=1
    for ((i = 1; i < m; i++)); do shape+=+1; done
    cluster_job "$shape"
    for ((i = 0; i < m; i++)); do echo "n$i"; done >"$simulations/hosts"
    echo '1 1' >"$simulations/layers"
    for rate in $rates; do
        # A bucket of 256 KiB would be a quarter of the least size, at no cost. Packets are then cut up.
        cluster_throttle "${rate}mbit" "${BURST:-16kb}"
        read -r latency each < <("${job[@]}" nice -n "${NICE:-0}" "$simulations/measure" "$simulations/layers" 1 link 0 1 "${LINKS:-30}" | shortest)
        platform "$m" "$rate" "$latency" >"$simulations/platform.xml"
        for mb in $sizes; do
            simulation_layers "x:4:0:$mb" "$simulations/layers"
            for a in $by; do
                measured=$("${job[@]}" nice -n "${NICE:-0}" "$simulations/measure" "$simulations/layers" 1 "$a" 0 1 "$calls" | shortest)
                # tc counts 1514 bytes of a packet with 1448 of payload, and the node acknowledges each second one with 66.
                simulated=$(EFFICIENCY=${EFFICIENCY:-0.936} MESSAGE=$(awk -v e="$each" 'BEGIN { print e / 2 }') \
                    simulation_run "$m" "$simulations/platform.xml" "$simulations/hosts" "$simulations/layers" 1 "$a" 0 1 2 | shortest)
                row nodes "$m" Mbit/s "$rate" 'latency us' "$latency" MB "$mb" by "$a" 'measured ms' "$measured" 'simulated ms' "$simulated" \
                    'simulated / measured' "$(awk -v a="$measured" -v b="$simulated" 'BEGIN { printf "%.2f", b / a }')"
            done
        done
    done
    cluster_down
done
results simulate-check NODES RATES SIZES BY CALLS CONGESTION
