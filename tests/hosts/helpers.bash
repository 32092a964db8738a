# shellcheck shell=bash disable=SC2154
# What the tests on several nodes share: those of tests/cli, on the nodes of a cluster. A test file says
#     setup_file() { nodes 3; }
#     teardown_file() { cluster_down; }
#     setup() { enter_cluster; }

load ../cli/helpers
load cluster

nodes() {
    cluster_up "$1" || export cluster_why
}

enter_cluster() {
    [[ -z ${cluster_why:-} ]] || skip "$cluster_why"
    enter_folder
    cluster_agree
}

# on SHAPE COMMAND...: the command under mpiexec, ended when it hangs.
on() {
    local job
    cluster_job "$1"
    shift
    timeout --kill-after=5 "$HANG_LIMIT" "${job[@]}" "$@"
}

# As in tests/cli, but N is a shape, such as 2+2. train_on uses it.
darknet_on() {
    on "$1" "$DARKNET" "${@:2}"
}

# pid_of RANK: its process id in the cluster; nothing where there is no such rank.
pid_of() {
    # shellcheck disable=SC2016  # expanded by the inner shell
    cluster_run bash -c 'for p in $(ps -A -o pid=,comm= | sed -n "s/ darknet\$//p"); do
            ! { tr "\0" "\n" <"/proc/$p/environ" | grep -qx "OMPI_COMM_WORLD_RANK=$1"; } 2>/dev/null || echo "$p"
        done' - "$1"
}

# end_all: for teardown: what a test has started in the cluster, and not seen the end of, must not disturb the next one.
end_all() {
    [[ -z ${started:-} ]] || kill -KILL "$started" 2>/dev/null || true
    [[ -n ${cluster_why:-} ]] || cluster_clear || true
}

# mpiexec_failed STATUS: it is not 0. Open MPI 5's mpiexec ends with 0 where it has itself lost a machine.
mpiexec_failed() {
    (($1 != 0)) || mpiexec --version | grep 'Open MPI) 5' >/dev/null
}

