#!/usr/bin/env bats
# shellcheck disable=SC2030,SC2031,SC2154  # words: ssh.bash; tests are functions that shellcheck takes for subshells
# mpiexec and cmn-run on node1 start ranks on node2 through a real ssh: what trains, and what people meet who set it up.

load helpers
load ssh

SSH=/run/cluster/ssh

setup_file() { nodes 2; }
teardown_file() { cluster_down; }

setup() {
    local why
    why=$(ssh_lacks)
    [[ -z $why ]] || skip "$why"
    enter_cluster
    ssh_up
    mpi=()
}

teardown() {
    [[ -z ${started:-} ]] || kill -KILL "$started" 2>/dev/null || true
    [[ -n ${cluster_why:-} ]] || cluster_throttle 10gbit
}

# by_mpiexec COMMAND...: on node1, two ranks there and two on node2; ended when it hangs.
by_mpiexec() {
    ssh_words node1 mpiexec --bind-to none --mca mpi_yield_when_idle 1 "${mpi[@]}" --host "node1:2,${other:-node2}:2" -n 4 "$@"
    timeout --kill-after=5 $((200 * SLOW)) "${words[@]}"
}

# by_cmn_run OPTIONS... -- COMMAND...: the same, with the options that it chooses itself. `limit`: seconds, 200.
by_cmn_run() {
    ssh_words node1 "$BUILD/bin/cmn-run" -hosts "node1:2,${other:-node2}:2" -mpi "${mpi[*]}" "$@"
    timeout --kill-after=5 $((${limit:-200} * SLOW)) "${words[@]}"
}

train=("$DARKNET" classifier train small.data mlp.cfg -cmn -cmn_seed 7 -cmn_validate 0)

# neither_starts SAYS LINE: mpiexec ends, not with 0, and what it lets through of ssh or the shell there matches SAYS;
# cmn-run ends with 1 and one line on its standard error, which matches LINE.
neither_starts() {
    local status=0
    by_mpiexec hostname >mpi.out 2>mpi.err </dev/null || status=$?
    echo "mpiexec: status $status"
    sed 's/^/  /' mpi.err
    ((status != 0 && status != 124 && status != 137))
    grep -Eq -- "$1" mpi.err
    status=0
    by_cmn_run -- "${train[@]}" -cmn_checkpoint 5 >run.out 2>run.err </dev/null || status=$?
    echo "cmn-run: status $status"
    cat run.err
    [[ $status -eq 1 && $(wc -l <run.err) -eq 1 && ! -s run.out ]]
    grep -Eq -- "^cmn-run: $2" run.err
}

@test "real MNIST on two nodes over ssh: the weights of one host" {
    small_data 6000 10
    mlp_cfg batch=60 max_batches=100 cmn_batch=global cmn_communicator=naive >mlp.cfg
    darknet_on 4 classifier train small.data mlp.cfg -cmn -cmn_seed 7 -cmn_validate 0 >one.log 2>&1 || { cat one.log; false; }
    mv out/mlp.weights one.weights
    by_mpiexec "${train[@]}" >two.log 2>&1 || { cat two.log; false; }
    grep '^cmn: 4 ranks on 2 nodes' two.log
    [[ $(seen out/mlp.weights) -eq 6000 ]]
    cmp one.weights out/mlp.weights
}

@test "a host key that is not known, or another one" {
    cluster_run sh -c ": >$SSH/known"
    neither_starts '^Host key verification failed' 'node2: its host key is not known here: log in once by hand'
    cluster_run sh -c "echo \"node2 \$(cut -d ' ' -f 1,2 $SSH/node1.pub)\" >$SSH/known"
    neither_starts 'REMOTE HOST IDENTIFICATION HAS CHANGED' 'node2: its host key is not the one known here: .*ssh-keygen -R'
}

@test "in a terminal ssh waits for no answer" {
    command -v script >/dev/null || skip 'script (bsdutils) is not installed'
    cluster_run sh -c ": >$SSH/known"
    ssh_words node1 "$BUILD/bin/cmn-run" -hosts node1:2,node2:2 -- "${train[@]}" -cmn_checkpoint 5
    timeout --kill-after=5 $((200 * SLOW)) script -qec "$(printf '%q ' "${words[@]}")" screen.txt </dev/null >/dev/null 3>&- || true
    cat screen.txt
    grep -q 'cmn-run: node2: its host key is not known here' screen.txt
    run -1 grep -E 'yes/no|no answer within' screen.txt
}

@test "a name that nobody knows; a machine that is down; one without sshd" {
    other=nobody neither_starts 'Could not resolve hostname nobody' 'nobody(:2 cannot be used|: there is no machine of this name)'
    cluster_run sh -c "grep -q node9 $SSH/hosts || echo 10.77.0.9 node9 >>$SSH/hosts"
    other=node9 neither_starts 'connect to host node9 port 22: No route to host' \
        'node9:2 cannot be used \(ssh: connect to host node9 port 22: No route to host\): at the first start .*-wait SECONDS$'
    ssh_down node2
    neither_starts 'connect to host node2 port 22: Connection refused' 'node2:2 cannot be used \(ssh: .*Connection refused\): at the first start'
}

@test "no key that is let in; Open MPI in another folder there" {
    ssh_up node2 'AuthorizedKeysFile none'
    neither_starts '^root@node2: Permission denied \(' 'node2: ssh may not log in there without a password: .*ssh-copy-id'
    ssh_up
    mpi+=(--prefix /opt/openmpi)
    neither_starts '/opt/openmpi/bin/(orted|prted): No such file' 'node2: Open MPI is not where .*--prefix /path/of/openmpi'
}

@test "the shell there has another PATH" {
    ssh_up node2 "SetEnv HOME=$SSH/home PATH=/sbin"
    mpiexec --version | grep 'OpenRTE' || skip 'Open MPI 5 starts its daemon there by its full name'
    neither_starts 'orted: command not found' 'node2: Open MPI is not where .*--prefix /path/of/openmpi'
}

@test "a shell that greets disturbs nothing" {
    small_data 240 10
    mlp_cfg batch=60 max_batches=4 >mlp.cfg
    # shellcheck disable=SC2016  # for that shell
    cluster_run sh -c 'printf "%s\n" "echo Welcome to \$(hostname)" "echo you have mail >&2" >"$1"/home/.bashrc' - $SSH
    by_mpiexec "${train[@]}" >two.log 2>&1 || { cat two.log; false; }
    grep 'Welcome to node2' two.log
    empty_out
    by_cmn_run -- "${train[@]}" -cmn_checkpoint 2 >run.out 2>run.err || { cat run.err; false; }
    cat run.err cmn-run.log
    [[ -s out/mlp.weights ]]
    grep -E 'cmn-run\[[0-9]+\] checkpoint +the first' cmn-run.log
    # It does not hide what is wrong either.
    cluster_run sh -c "echo 'exit 3' >>$SSH/home/.bashrc"
    status=0
    by_cmn_run -- "${train[@]}" -cmn_checkpoint 2 >run.out 2>run.err || status=$?
    cat run.err
    [[ $status -eq 1 && $(wc -l <run.err) -eq 1 ]]
}

# only_node1 FOLDER: it is empty on node2.
only_node1() {
    mkdir -p nothing
    cluster_differs node2 "$1" nothing
    ssh_up
}

@test "the program is missing there" {
    mkdir bin
    cp "$DARKNET" bin/darknet
    only_node1 bin
    small_data 60 10
    mlp_cfg >mlp.cfg
    status=0
    by_cmn_run -- "$PWD/bin/darknet" classifier train small.data mlp.cfg -cmn -cmn_checkpoint 5 >run.out 2>run.err || status=$?
    cat run.err
    ((status != 0 && status != 124 && status != 137))
    [[ $(grep '^cmn-run: ' run.err) == "cmn-run: node2: $PWD/bin/darknet is not there, or may not be executed: "* ]]
    [[ $(grep -c ' start   ' cmn-run.log) -eq 1 ]]
}

# one_line PATTERN COMMAND...: it ends with 1; the ranks and cmn-run say one line, which matches.
one_line() {
    local status=0 pattern=$1
    shift
    "$@" >one.out 2>one.err || status=$?
    echo "status $status of: $*"
    cat one.err
    [[ $status -eq 1 && $(grep -cE '^cmn(\[|-run: )' one.err) -eq 1 ]]
    grep -Eq -- "$pattern" one.err
}

@test "the cfg need not be there; images that are missing there: one line of a rank, and cmn-run does not try again" {
    small_data 60 10
    mkdir cfg
    mlp_cfg >cfg/mlp.cfg
    cp small.data cfg
    only_node1 cfg
    by_mpiexec "$DARKNET" classifier train cfg/small.data cfg/mlp.cfg -cmn -cmn_validate 0
    [[ -s out/mlp.weights ]]
    only_node1 "$REPO/data/mnist/train"
    one_line '^cmn\[rank [23]@node2\] .*Cannot load image' by_cmn_run -- \
        "$DARKNET" classifier train cfg/small.data cfg/mlp.cfg -cmn -cmn_validate 0 -cmn_checkpoint 5
    [[ $(grep -c ' start   ' cmn-run.log) -eq 1 ]]
}

# docs/use/cmn-run.md names this command.
@test "cmn-run with cmn check tries out the machines, and names a program that is another one there" {
    by_cmn_run -- "$DARKNET" cmn check >report.txt 2>err.txt || { cat report.txt err.txt; false; }
    grep '^diagnosis: good: 4 ranks can train together' report.txt
    cp "$DARKNET" other
    printf x >>other
    cluster_differs node2 "$DARKNET" other
    ssh_up
    run -1 by_cmn_run -- "$DARKNET" cmn check
    echo "$output"
    [[ $output == *'diagnosis: fault: different programs: the file that rank 2 on node2 runs'* ]]
}

# ---- cmn-run, and what dies on node2 ----

# prepare: 120 steps of four ranks that share each batch of 60; undisturbed.weights is what comes of them on one host.
prepare() {
    small_data 24000 10
    mlp_cfg batch=60 max_batches=120 cmn_batch=global cmn_communicator=naive >mlp.cfg
    if [[ ! -e $BATS_FILE_TMPDIR/undisturbed.weights ]]; then
        darknet_on 4 classifier train small.data mlp.cfg -cmn -cmn_seed 7 -cmn_validate 0 >undisturbed.log 2>&1 ||
            { cat undisturbed.log; return 1; }
        mv out/mlp.weights "$BATS_FILE_TMPDIR/undisturbed.weights"
        empty_out
    fi
    ln -s "$BATS_FILE_TMPDIR/undisturbed.weights" .
}

checkpoints() {
    [[ $(find out -name '*.checkpoint' -newer "$1" | wc -l) -ge 1 ]]
}

# await WHAT COMMAND...
await() {
    wait_for "$@" || { cat run.err cmn-run.log; return 1; }
}

# start: cmn-run in the background, until there is a checkpoint. A step takes 0.2 s on the slow link, so that the training
# cannot end before what is to be killed. Sets started.
start() {
    cluster_throttle 10mbit
    touch before
    limit=400 by_cmn_run -- "${train[@]}" -cmn_checkpoint 10 -cmn_timeout 20 >run.out 2>run.err 3>&- &
    started=$!
    await 'a checkpoint' checkpoints before
}

# kill_there PATTERN: SIGKILL to the first process of node2 whose command line matches.
kill_there() {
    # shellcheck disable=SC2016  # expanded by the inner shell
    cluster_run bash -c 'for pid in $(pgrep -f -- "$1"); do
        if [[ $(nsenter --target "$pid" --uts hostname 2>/dev/null) == node2 && $pid != $$ ]]; then kill -KILL "$pid"; exit; fi; done; exit 1' - "$1"
}

ends_well() {
    local status=0
    wait "$started" || status=$?
    cat run.err cmn-run.log
    [[ $status -eq 0 ]]
}

event() {
    grep -E "cmn-run\[[0-9]+\] $1 +" cmn-run.log
}

@test "cmn-run over ssh: a rank there is killed, then mpiexec's daemon: the same bits in the end" {
    prepare
    start
    kill_there "^$DARKNET"
    await 'the next start' event resume
    touch later
    await 'another checkpoint' checkpoints later
    kill_there '(orted|prted) '
    cluster_throttle 10gbit
    ends_well
    [[ $(event start | wc -l) -eq 3 && $(event resume | wc -l) -eq 2 ]]
    cmp undisturbed.weights out/mlp.weights
}

@test "cmn-run over ssh: sshd and mpiexec's daemon there are killed: node1 continues" {
    prepare
    start
    ssh_down node2
    kill_there '(orted|prted) '
    cluster_throttle 10gbit
    ends_well
    event gone | grep 'node2:2 .*Connection refused.*without it'
    [[ $(event start | tail -n 1) == *'-host node1:2 -n 2 '* ]]
    assert_close undisturbed.weights out/mlp.weights 1e-5
}
