#!/usr/bin/env bash
# agent.sh NODE COMMAND...: mpiexec's remote shell in a cluster. Runs the command on the node: in its network, with its
# host name, its own /dev/shm, a clock that cluster_clock has put forward, and what cluster_differs puts there in place of files.
set -euo pipefail

node=$1
shift
clock=()
if [[ -f /run/cluster/$node/clock ]]; then
    clock=(--time --monotonic "$(</run/cluster/"$node"/clock)")
fi
# shellcheck disable=SC2016  # expanded by the inner shell
exec ip netns exec "$node" unshare --uts --mount "${clock[@]}" bash -c '
    set -euo pipefail
    here=/run/cluster/$1
    hostname "$1"
    mount --bind "$here/shm" /dev/shm
    if [[ -f $here/differs ]]; then
        while IFS= read -r path && IFS= read -r other; do
            mount --bind "$other" "$path"
        done <"$here/differs"
    fi
    cd "$2"
    set +euo pipefail    # as a shell that ssh starts
    eval "$3"' - "$node" "$PWD" "$*"
