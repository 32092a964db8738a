#!/usr/bin/env bash
# Two nodes joined by a slow link: seconds for one exchange of 64 MB of gradients by each communicator that works
# there, by Open MPI's own MPI_Allreduce ("raw"), and for sending 64 MB one way ("send"): what the link takes at the
# least, because in a sum over two nodes each must send that much. All take turns, so that they see the same machine;
# medians. The nodes are namespaces of this machine (tests/hosts/cluster.bash). Asserts nothing.
# Usage: make bench-link [RATE=1gbit] [FLOATS=16777216] [CALLS=7] [SHAPES='2+2 3+2']
set -euo pipefail

cd "$(dirname "$0")/.."
RATE=${RATE:-1gbit}
FLOATS=${FLOATS:-16777216}
CALLS=${CALLS:-7}
read -ra shapes <<<"${SHAPES:-2+2 3+2}"
: "${BUILD:?run this by make bench-link}"

# shellcheck source=tests/hosts/cluster.bash
. tests/hosts/cluster.bash
if ! cluster_up 2; then
    echo "bench-link: $cluster_why" >&2
    exit 1
fi
trap cluster_down EXIT
cluster_throttle "$RATE"

# median <NUMBERS
median() {
    sort -g | awk '{ x[NR] = $1 } END { m = int((NR + 1) / 2); print NR % 2 ? x[m] : (x[m] + x[m + 1]) / 2 }'
}

# table SHAPE TITLE [MPIEXEC'S OPTION...]: the first call of each is not counted: connections, and new pages of memory.
table() {
    local output name names raw link
    cluster_job "$1"
    output=$("${job[@]}" "${@:3}" "$BUILD/tests/hosts/exchange" "$FLOATS" $((CALLS + 1)) send,raw,all)
    raw=$(awk '$1 == "raw" && seen++ { print $2 }' <<<"$output" | median)
    link=$(awk '$1 == "send" && seen++ { print $2 }' <<<"$output" | median)
    printf '\n%-30s %9s %15s %15s\n' "$1, $2" seconds 'against raw' 'of the link'
    names=$(awk '$2 + 0 > 0 && !seen[$1]++ { print $1 }' <<<"$output")
    for name in $names; do
        awk -v name="$name" '$1 == name && seen++ { print $2 }' <<<"$output" | median |
            awk -v name="$name" -v raw="$raw" -v link="$link" '{
                printf "%-30s %9.3f %15s %13.0f %%\n", name, $1, name == "send" ? "-" : sprintf("%.2f", raw / $1),
                    100 * link / $1 }'
    done
}

awk -v f="$FLOATS" -v r="$RATE" -v c="$CALLS" -v n="$(nproc)" -F': *' '/^model name/ {
    printf "machine: %s, %d cores; %.0f MB of gradients, link of %s, medians of %d\n", $2, n, f * 4 / 1e6, r, c; exit }' /proc/cpuinfo
for shape in "${shapes[@]}"; do
    table "$shape" 'ranks node by node'
    table "$shape" 'ranks dealt out in turn' --map-by node
done
