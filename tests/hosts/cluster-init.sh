#!/usr/bin/env bash
# cluster-init.sh NODES: the first process of a cluster (cluster.bash), in mount, network and process namespaces of its
# own. Builds the nodes and their network, prints "ready", and stays: when it ends, everything in the cluster ends.
#
#   br0 10.77.0.254 ── veth1 ── eth0 10.77.0.1 of node1
#                  └── veth2 ── eth0 10.77.0.2 of node2 …
set -euo pipefail

# `ip netns` keeps its names below /run: those of the machine are neither seen nor touched.
mount -t tmpfs none /run
# Open MPI takes a space in its agent's path for the end of it.
mkdir /run/cluster
cp "$(dirname "${BASH_SOURCE[0]}")/agent.sh" /run/cluster/agent.sh
ip link set lo up
ip link add br0 type bridge
ip address add 10.77.0.254/24 dev br0
ip link set br0 up
for ((i = 1; i <= $1; i++)); do
    node=node$i
    ip netns add "$node"
    ip link add "veth$i" type veth peer name eth0 netns "$node"
    # What nobody asked for would be counted as traffic of a job.
    ip netns exec "$node" sysctl -q -w net.ipv6.conf.all.disable_ipv6=1 2>/dev/null || true
    ip link set "veth$i" master br0 up
    ip -n "$node" link set lo up
    ip -n "$node" address add "10.77.0.$i/24" dev eth0
    ip -n "$node" link set eth0 up
    mkdir -p "/run/cluster/$node/shm"
    mount -t tmpfs -o mode=1777 none "/run/cluster/$node/shm"
done
echo ready
exec >/dev/null 2>&1

# Orphans of the cluster become children of its first process: bash takes their status while it waits.
while :; do
    sleep 3600 &
    wait
done
