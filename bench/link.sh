#!/usr/bin/env bash
# Measures the seconds of an exchange of 64 MB of gradients over a slow link between two nodes: by each communicator that works there, by
# Open MPI's own MPI_Allreduce ("raw"), and for sending 64 MB one way ("send"). The latter is the least that a sum over two nodes can
# take, because each must send that much. The nodes are namespaces of this machine (tests/hosts/cluster.bash). Asserts nothing.
# Usage: make bench-link [RATE=1gbit] [FLOATS=16777216] [CALLS=7] [SHAPES='2+2 3+2']
set -euo pipefail

cd "$(dirname "$0")/.."
RATE=${RATE:-1gbit}
FLOATS=${FLOATS:-16777216}
CALLS=${CALLS:-7}
read -ra shapes <<<"${SHAPES:-2+2 3+2}"
: "${BUILD:?run this by make bench-link}"
. bench/common.bash

# shellcheck source=tests/hosts/cluster.bash
. tests/hosts/cluster.bash
if ! cluster_up 2; then
    echo "bench-link: $cluster_why" >&2
    exit 1
fi
trap 'cluster_down; rm -rf "$work"' EXIT
cluster_throttle "$RATE"

# measure SHAPE TITLE [MPIEXEC'S OPTION...]: adds rows of medians. The first call of each is not counted: it makes connections.
measure() {
    local output name names seconds raw link
    cluster_job "$1"
    output=$("${job[@]}" "${@:3}" "$BUILD/tests/hosts/exchange" "$FLOATS" $((CALLS + 1)) send,raw,all)
    raw=$(awk '$1 == "raw" && seen++ { print $2 }' <<<"$output" | median)
    link=$(awk '$1 == "send" && seen++ { print $2 }' <<<"$output" | median)
    names=$(awk '$2 + 0 > 0 && !seen[$1]++ { print $1 }' <<<"$output")
    for name in $names; do
        seconds=$(awk -v name="$name" '$1 == name && seen++ { print $2 }' <<<"$output" | median)
        row '' "$name" ranks "$1, $2" seconds "$(printf %.3f "$seconds")" \
            'of the link' "$(awk -v s="$seconds" -v link="$link" 'BEGIN { print link / s }' | percent)" \
            'as fast as raw' "$(awk -v s="$seconds" -v raw="$raw" 'BEGIN { printf "%.2f", raw / s }')"
    done
}

for shape in "${shapes[@]}"; do
    measure "$shape" 'ranks node by node'
    measure "$shape" 'ranks dealt out in turn' --map-by node
done
results link RATE FLOATS CALLS
