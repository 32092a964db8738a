# shellcheck shell=bash disable=SC2034,SC2154
# Real Slurm on the nodes of a cluster (cluster.bash): munge and slurmctld beside the nodes, a slurmd on each node. All
# of it lives in the cluster, and ends with it.
#
#   slurm_up NODES                    makes the cluster and Slurm; 1 with the reason in cluster_why when they cannot be had
#   slurm_run COMMAND...              runs it where people log in, beside the nodes: srun, sbatch, scontrol
#   slurm_says JOB FIELD              what scontrol says of the job: JobState, Restarts, NodeList, ExitCode
#   slurm_pids NODE [PATTERN]         processes on the node whose command matches
#   slurm_node_dies NODE              all that runs there ends, and its link is cut
#   slurm_node_returns NODE

cluster_home=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/hosts/cluster.bash
. "$cluster_home/cluster.bash"

slurm_lacks() {
    local tool
    for tool in munged slurmctld slurmd srun; do
        command -v "$tool" >/dev/null || { echo "$tool is not installed (packages slurm-wlm, munge)"; return; }
    done
}

slurm_up() {
    local said
    cluster_why=$(slurm_lacks)
    [[ -z $cluster_why ]] || return 1
    cluster_up "$1" || return 1
    if ! said=$(cluster_run "$cluster_home/slurm-init.sh" "$1" 2>&1); then
        cluster_why="Slurm does not start here: $(tail -n 1 <<<"$said")"
        cluster_down
        return 1
    fi
}

# Within a job mpiexec asks Slurm for its nodes; what the cluster's own settings say of them is not there.
slurm_run() {
    cluster_run env -u OMPI_MCA_plm_rsh_agent -u OMPI_MCA_oob_tcp_if_include -u OMPI_MCA_orte_tmpdir_base -u PRTE_MCA_plm_ssh_agent \
        -u PRTE_MCA_prte_if_include -u PRTE_MCA_prte_tmpdir_base SLURM_CONF=/run/cluster/slurm/slurm.conf "$@"
}

slurm_says() {
    slurm_run scontrol show job "$1" | tr ' ' '\n' | sed -n "s/^$2=//p"
}

slurm_pids() {
    # shellcheck disable=SC2016  # expanded by the inner shell
    cluster_run bash -c 'for pid in $(pgrep -f "$1"); do
        [[ $(nsenter --target "$pid" --uts hostname 2>/dev/null) != "$0" ]] || echo "$pid"; done' "$1" "${2:-.}"
}

slurm_node_dies() {
    cluster_run ip -n "$1" link set eth0 down
    cluster_kill "$1"
}

slurm_node_returns() {
    cluster_run ip -n "$1" link set eth0 up
    slurm_run "$cluster_home/agent.sh" "$1" slurmd
}
