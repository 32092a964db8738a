#!/usr/bin/env bash
# agent.sh NODE COMMAND...: mpiexec's remote shell in a cluster. Runs the command on the node: in its network, with its
# host name, its own /dev/shm, and what cluster_differs puts there in place of files.
set -euo pipefail

node=$1
shift
# shellcheck disable=SC2016  # expanded by the inner shell
exec ip netns exec "$node" unshare --uts --mount bash -c '
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
    eval "$3"' - "$node" "$PWD" "$*"
