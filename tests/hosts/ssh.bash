# shellcheck shell=bash disable=SC2154
# Nodes of a cluster with an sshd each, and keys made for the test: what mpiexec starts on another node, it starts through ssh, as on
# people's machines. Needs root, as sshd becomes who logs in.
#
#   ssh_lacks                       why that cannot be had here, or nothing
#   ssh_up [NODE LINE...]           starts an sshd on each node, or anew; lines for sshd_config of that node, before all others
#   ssh_down NODE                   ends the sshd of that node
#   ssh_words NODE COMMAND...       sets the array words to what runs COMMAND on the node, where mpiexec uses ssh
#
# All of it lies in /run/cluster/ssh, which only the cluster sees: ssh's config, known (host keys), key, and home of who logs in.
# What cluster_differs has put on a node, who logs in meets there from the next ssh_up on.

ssh_lacks() {
    local tool
    [[ $(id -u) -eq 0 ]] || { echo 'sshd needs root'; return; }
    for tool in sshd ssh ssh-keygen; do
        command -v "$tool" >/dev/null || { echo "$tool is not installed (packages openssh-server, openssh-client)"; return; }
    done
}

ssh_up() {
    # shellcheck disable=SC2016  # expanded by the inner shell
    cluster_run bash -euo pipefail -c '
        agent=$1 sshd=$2 nodes=$3 special=${4:-}
        cd /run/cluster
        # Where this machine says which kernels OpenBLAS is to take, it says so to all: others would make other bits.
        kernels=${OPENBLAS_CORETYPE:+OPENBLAS_CORETYPE=$OPENBLAS_CORETYPE}${OPENBLAS_L2_SIZE:+ OPENBLAS_L2_SIZE=$OPENBLAS_L2_SIZE}
        sanitizers="\"ASAN_OPTIONS=${ASAN_OPTIONS:-}\" \"UBSAN_OPTIONS=${UBSAN_OPTIONS:-}\" \"TSAN_OPTIONS=${TSAN_OPTIONS:-}\""
        if [[ ! -d ssh ]]; then
            mkdir -p -m 755 /run/sshd ssh/home
            ssh-keygen -q -t ed25519 -N "" -f ssh/key
            cp /etc/hosts ssh/hosts
            for node in $nodes; do
                ssh-keygen -q -t ed25519 -N "" -f ssh/$node
                echo "10.77.0.${node#node} $node" >>ssh/hosts
            done
            mount --bind ssh/hosts /etc/hosts
            printf "%s\n" "IdentityFile $PWD/ssh/key" "IdentitiesOnly yes" "UserKnownHostsFile $PWD/ssh/known" "GlobalKnownHostsFile none" \
                "LogLevel ERROR" >ssh/config
        fi
        : >ssh/known
        rm -f ssh/home/.bashrc
        for node in $nodes; do
            while [[ -s ssh/$node.pid ]] && kill "$(<ssh/$node.pid)" 2>/dev/null; do
                sleep 0.01
            done
            echo "$node,10.77.0.${node#node} $(cut -d " " -f 1,2 ssh/$node.pub)" >>ssh/known
            {
                [[ $node != "$special" ]] || printf "%s\n" "${@:5}"
                printf "%s\n" "HostKey $PWD/ssh/$node" "AuthorizedKeysFile $PWD/ssh/key.pub" "StrictModes no" "UsePAM no" "PidFile none" \
                    "PermitRootLogin yes" "UseDNS no" "SetEnv HOME=$PWD/ssh/home $kernels $sanitizers"
            } >ssh/$node.conf
            "$agent" $node "exec $sshd -D -f $PWD/ssh/$node.conf -E $PWD/ssh/$node.log" </dev/null >/dev/null 2>&1 3>&- &
            echo $! >ssh/$node.pid
        done
        for node in $nodes; do
            for ((i = 0; i < 2000; i++)); do
                ! "$agent" $node "bash -c \"exec 4<>/dev/tcp/$node/22\"" 2>ssh/why || continue 2
                sleep 0.05
            done
            cat ssh/why ssh/$node.log
            exit 1
        done' - "$cluster_home/agent.sh" "$(command -v sshd)" "$cluster_nodes" "$@"
}

ssh_down() {
    # shellcheck disable=SC2016  # expanded by the inner shell
    cluster_run sh -c 'while kill "$(cat "$1")" 2>/dev/null; do sleep 0.01; done; rm "$1"' - "/run/cluster/ssh/$1.pid"
}

ssh_words() {
    local node=$1 agent='ssh -F /run/cluster/ssh/config'
    shift
    cluster_words env OMPI_MCA_plm_rsh_agent="$agent" PRTE_MCA_plm_ssh_agent="$agent" "$cluster_home/agent.sh" "$node" "${*@Q}"
}
