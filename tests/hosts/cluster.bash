# shellcheck shell=bash
# Several nodes on one machine. A node is a network namespace with its own host name and /dev/shm, joined to the others by
# a bridge: to MPI a host, and what it sends to another host really crosses its eth0, where it is counted and can be
# narrowed. All of it lives in mount, network and process namespaces of the cluster's own, so that nothing can be left
# behind, two clusters cannot meet, and the machine's own network is not touched. A user who is not root makes them in a
# user namespace.
#
#   cluster_up NODES                  makes node1, node2, …; 1 with the reason in cluster_why when they cannot be had
#   cluster_down                      ends them and all that runs there
#   cluster_job SHAPE [NODE]          sets the array job to an mpiexec of that many ranks a node: 3+2 is 3 on node1;
#                                     mpiexec runs on NODE, or beside the nodes
#   cluster_run COMMAND...            runs it beside the nodes, such as an mpiexec of one's own: --host node1:2,node2:2
#   cluster_on NODE COMMAND...        runs it on a node
#   cluster_sent NODE                 bytes that the node has sent since it was made
#   cluster_payload NODE              the same without the headers of its packets, and what TCP sent twice
#   cluster_throttle RATE [BURST]       limits what each node sends, e.g. 1gbit; so much may go at once, e.g. 16kb, after a pause
#   cluster_differs NODE PATH OTHER   for what starts on that node, OTHER lies where PATH is (two files, or two folders)
#   cluster_agree                     ends all such differences
#   cluster_clock NODE SECONDS        for what starts on that node, CLOCK_MONOTONIC is so far ahead; fails where it cannot be
#   cluster_shm NODE SIZE             gives the node a new /dev/shm of that size, e.g. 1m
#   cluster_kill NODE                 ends all that runs on a node, and waits until it has ended
#   cluster_clear                     the same on all nodes and beside them
#   cluster_left                      processes that run in the cluster
#
# The cluster ends with the shell that made it.

cluster_home=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cluster_why=${cluster_why:-}
# Where Debian has tc; not all people's shells look there.
PATH=$PATH:/usr/sbin:/sbin

# Why a cluster cannot be made here: a reason for people, or nothing.
cluster_lacks() {
    local tool
    for tool in ip tc unshare nsenter setpriv ps; do
        command -v "$tool" >/dev/null || { echo "$tool is not installed (packages iproute2, util-linux, procps)"; return; }
    done
    mpiexec --version 2>/dev/null | grep -E 'Open(RTE| MPI)' >/dev/null || { echo 'mpiexec is not of Open MPI'; return; }
}

cluster_up() {
    local answer='' user=() i
    cluster_why=$(cluster_lacks)
    [[ -z $cluster_why ]] || return 1
    [[ $(id -u) -eq 0 ]] || user=(--user --map-root-user)
    # Two deaths are passed on: of this shell to unshare, and of unshare to the first process.
    exec {cluster_fd}< <(exec setpriv --pdeathsig KILL unshare "${user[@]}" --mount --net --pid --fork --kill-child \
        --mount-proc "$cluster_home/cluster-init.sh" "$1" 2>&1 3>&-)
    cluster_holder=$!
    read -r -t 120 answer <&"$cluster_fd" || true
    exec {cluster_fd}<&-
    cluster_first=$(ps -o pid= --ppid "$cluster_holder" | tr -d ' ')
    if [[ $answer != ready || -z $cluster_first ]]; then
        cluster_why="namespaces cannot be made here: ${answer:-no answer}"
        kill -KILL "$cluster_holder" 2>/dev/null || true
        return 1
    fi
    cluster_nodes=
    for ((i = 1; i <= $1; i++)); do
        cluster_nodes+=" node$i"
    done
    export cluster_holder cluster_first cluster_nodes
}

cluster_down() {
    [[ -z ${cluster_holder:-} ]] || kill -KILL "$cluster_holder" 2>/dev/null || true
    cluster_holder=
}

# cluster_words COMMAND...: sets the array words to what runs COMMAND in the cluster, in the current folder. Any mpiexec
# there starts its ranks on the nodes: these settings are what several networks, and no ssh, ask for. OMPI_MCA_ names are
# those of Open MPI 4, and of MPI itself in Open MPI 5, whose launcher has PRTE_MCA_ names.
cluster_words() {
    local user=()
    [[ $(id -u) -eq 0 ]] || user=(--user --preserve-credentials)
    # shellcheck disable=SC2016  # expanded by the inner shell
    words=(nsenter --target "$cluster_first" "${user[@]}" --mount --net --pid env OMPI_ALLOW_RUN_AS_ROOT=1
        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_orte_tmpdir_base=/run/cluster
        OMPI_MCA_plm_rsh_agent=/run/cluster/agent.sh OMPI_MCA_oob_tcp_if_include="br0,eth0"
        PRTE_MCA_prte_tmpdir_base=/run/cluster PRTE_MCA_plm_ssh_agent=/run/cluster/agent.sh PRTE_MCA_prte_if_include="br0,eth0"
        OMPI_MCA_btl_tcp_if_include=eth0 OMPI_MCA_pml=ob1 OMPI_MCA_btl="tcp,vader,self"
        sh -c 'cd "$0" && exec "$@"' "$PWD" "$@")
}

cluster_run() {
    local words
    cluster_words "$@"
    "${words[@]}"
}

cluster_on() {
    local node=$1
    shift
    cluster_run "$cluster_home/agent.sh" "$node" "${*@Q}"
}

cluster_job() {
    local count hosts='' ranks=0 node=0 words on=() name set=()
    # shellcheck disable=SC2016  # expanded by the inner shell
    [[ -z ${2:-} ]] || on=(ip netns exec "$2" unshare --uts --mount
        bash -c 'hostname "$0" && mount --bind "/run/cluster/$0/shm" /dev/shm && exec "$@"' "$2")
    for count in ${1//+/ }; do
        node=$((node + 1)) ranks=$((ranks + count))
        hosts+=${hosts:+,}node$node:$count
    done
    for name in ${!CMN_DEBUG_*}; do # to the ranks of all nodes
        set+=(-x "$name")
    done
    cluster_words "${on[@]}" mpiexec --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 "${set[@]}" --host "$hosts" -n "$ranks"
    # shellcheck disable=SC2034  # what the caller asked for
    job=("${words[@]}")
}

cluster_sent() {
    cluster_run ip netns exec "$1" cat /sys/class/net/eth0/statistics/tx_bytes
}

# Each packet that the counters know has 14 bytes of Ethernet, 20 of IP and 32 of TCP with its time stamps; a packet here is
# what the kernel hands to the interface, up to 64 KiB, or less where a narrow link cuts it up. On a busy machine TCP at
# times takes what it sent for lost, and sends up to 64 KiB twice: segments of 1448 bytes, which it counts.
cluster_payload() {
    # shellcheck disable=SC2016  # expanded by the inner shell
    cluster_run ip netns exec "$1" sh -c 'cd /sys/class/net/eth0/statistics
        twice=$(awk "/^Tcp:/ { for (i in name) if (name[i] == \"RetransSegs\") print \$i; split(\$0, name) }" /proc/net/snmp)
        echo $(($(cat tx_bytes) - 66 * $(cat tx_packets) - 1448 * twice))'
}

cluster_throttle() {
    local node
    for node in $cluster_nodes; do
        # The burst holds a few of the 64 KiB packets that the kernel hands over; with a smaller one they are cut up.
        # The queue holds some 1700 full packets: what does not fit is lost, and TCP then waits for 200 ms or more.
        cluster_run tc -n "$node" qdisc replace dev eth0 root tbf rate "$1" burst "${2:-256kb}" limit 2500kb
    done
}

cluster_differs() {
    # shellcheck disable=SC2016  # expanded by the inner shell
    cluster_run sh -c 'printf "%s\n" "$2" "$3" >>"$1"' - "/run/cluster/$1/differs" "$(realpath "$2")" "$(realpath "$3")"
}

cluster_agree() {
    local node
    for node in $cluster_nodes; do
        cluster_run rm -f "/run/cluster/$node/differs" "/run/cluster/$node/clock"
    done
}

cluster_clock() {
    # shellcheck disable=SC2016  # expanded by the inner shell
    cluster_run sh -c 'echo "$2" >"/run/cluster/$1/clock"' - "$1" "$2"
    cluster_on "$1" grep -qE "^monotonic +$2 " /proc/self/timens_offsets
}

cluster_shm() {
    cluster_run mount -t tmpfs -o "mode=1777,size=$2" none "/run/cluster/$1/shm"
}

# What a process has begun meanwhile is seen by the next look.
cluster_kill() {
    # shellcheck disable=SC2016  # expanded by the inner shell
    cluster_run bash -c 'for ((i = 0; i < 1200; i++)); do
            mapfile -t pids < <(ip netns pids "$1")
            ((${#pids[@]})) || exit 0
            kill -KILL "${pids[@]}" 2>/dev/null
            sleep 0.05
        done
        echo "left on $1: ${pids[*]}"
        exit 1' - "$1"
}

# To kill(2) -1 is every process here but the first one and who asks.
cluster_clear() {
    cluster_run bash -c 'kill -KILL -1'
}

# Pid and command of every process but the first one with its sleep, and this question itself. Zombies have ended.
cluster_left() {
    cluster_run ps -A -o pid=,ppid=,stat=,args= |
        awk '$1 != 1 && $3 !~ /^Z/ && !($2 == 1 && $4 == "sleep") && !/ps -A -o pid=/ { print }'
}
