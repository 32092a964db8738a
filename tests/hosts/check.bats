#!/usr/bin/env bats
# shellcheck disable=SC2030,SC2031,SC2154  # job: helpers.bash; tests are functions that shellcheck takes for subshells
# darknet cmn check and bench on two nodes: what they say of healthy ones, and of those that cannot train together.

load helpers

setup_file() { nodes 2; }
teardown_file() { cluster_down; }
setup() { enter_cluster; }

# checked SHAPE ARGUMENTS...: the report goes to report.txt.
checked() {
    on "$1" "$DARKNET" cmn check "${@:2}" >report.txt 2>err.txt || { local status=$?; cat report.txt err.txt; return $status; }
    cat report.txt
}

@test "check: two healthy nodes" {
    checked 2+1
    grep -qE '^darknet-cmn .*, 3 ranks on 2 nodes$' report.txt
    grep -q '^node 0: node1, 2 ranks$' report.txt
    grep -q '^node 1: node2, 1 rank$' report.txt
    [[ $(grep -c '^  ranks 0 and 1: [0-9.]* us, [0-9.]* GB/s$' report.txt) -eq 1 ]]
    [[ $(grep -c '^  ranks 1 and 2: [0-9.]* us, [0-9.]* GB/s, between nodes$' report.txt) -eq 1 ]]
    [[ $(grep -c '^  network .* lo 127.0.0.1/8 (not for MPI), eth0 [0-9.]*/24; btl_tcp_if_include=eth0$' report.txt) -eq 2 ]]
    grep -q '^  single_node  *not here: ' report.txt
    run -1 grep '^diagnosis: fault' report.txt
    grep -q '^diagnosis: good: 3 ranks ' report.txt
}

@test "check: another program on one node" {
    cp "$DARKNET" other
    printf x >>other
    cluster_differs node2 "$DARKNET" other
    run -1 checked 2+2
    [[ $(grep -c '^diagnosis: fault: different programs: the file that rank 2 on node2 runs' report.txt) -eq 1 ]]
    run -1 grep 'diagnosis: good' report.txt
}

@test "check: another cfg on one node does not count" {
    mlp_cfg batch=20 >mlp.cfg
    mlp_cfg batch=30 >other.cfg
    checked 1+1 mlp.cfg
    cluster_differs node2 mlp.cfg other.cfg
    checked 1+1 mlp.cfg
    grep -q '^cfg mlp.cfg: 40 images a step; rank 0 computes 20 of them' report.txt
}

@test "bench: wrong sums of neither node" {
    on 1+2 "$DARKNET" cmn bench -sizes 1K,300000 -iters 2 >bench.txt 2>err.txt || { cat bench.txt err.txt; false; }
    cat bench.txt err.txt
    grep -q '3 ranks on 2 nodes' bench.txt
    grep -q '^cmn: without single_node: ' err.txt
    [[ $(grep -cE '^ +300000 +(naive|flat|hierarchical|two_dimensional|shm) .* 0$' bench.txt) -eq 5 ]]
}

# With docker0 the same address leads each node to itself. Open MPI then waits for ever.
@test "check: an interface like docker0 does not hang it" {
    for node in node1 node2; do
        cluster_run ip -n "$node" link add docker0 type bridge || skip 'no bridge can be made'
        cluster_run ip -n "$node" addr add 172.17.0.1/16 dev docker0
        cluster_run ip -n "$node" link set docker0 up
    done
    # Not to be used: healthy.
    checked 1+1
    grep -q 'docker0 172.17.0.1/16 (not for MPI)' report.txt
    # Where MPI may use it, either the start hangs and ends with a reason, or the diagnosis names it.
    cluster_job 1+1
    job=("${job[@]/#OMPI_MCA_btl_tcp_if_include=*/OMPI_MCA_btl_tcp_if_exclude=lo}")
    [[ " ${job[*]} " == *' OMPI_MCA_btl_tcp_if_exclude=lo '* ]]
    run timeout 200 "${job[@]}" "$DARKNET" cmn check -cmn_timeout 5
    echo "status $status: $output"
    ((status != 0 && status != 124))
    if [[ $(mpiexec --version) == *'Open MPI) 5'* && $output == *'connect() to 172.17.0.1:'*' failed'* ]]; then
        return 0 # it may find out by itself, and names the address
    fi
    [[ $output == *'nothing moved for 5 s in: '*'docker0'* || $output == *'fault: docker0 has the same address'* ]]
}
