#!/usr/bin/env bats
# shellcheck disable=SC2030,SC2031,SC2154  # job, words: cluster.bash; tests are functions that shellcheck takes for subshells
# Trainings under real Slurm: slurmctld, three slurmd and munge on the nodes of a cluster.

load helpers
load slurm

setup_file() { slurm_up 3 || export cluster_why; }
teardown_file() { cluster_down; }

setup() {
    enter_cluster
    top_folder
}

teardown() {
    [[ -z ${cluster_why:-} ]] || return 0
    # Seen where a test fails.
    tail -n 30 mnist-*.log results/mnist/cmn-run.log 2>/dev/null || true
    slurm_run sinfo --Node
    cluster_throttle 10gbit
    slurm_run scancel --user=root
    for ((i = 0; i < 1200; i++)); do
        [[ -n $(slurm_run squeue --noheader) ]] || break
        sleep 0.1
    done
}

# A folder in which the batch files are submitted, as people do it in the project's. Four ranks share each batch of 60; auto could
# choose another communicator at a second start.
top_folder() {
    small_data 24000 10
    mkdir -p bin results/mnist
    ln -s "$DARKNET" bin/darknet
    ln -s "$BUILD/bin/cmn-run" bin/cmn-run
    mlp_cfg batch=60 max_batches=120 cmn_batch=global cmn_communicator=hierarchical >mlp.cfg
    train=(classifier train small.data mlp.cfg -cmn -cmn_seed 7 -cmn_validate 0)
}

# batch_file NAME [SED]: that of examples/multi-node with a shorter training, and what SED changes.
batch_file() {
    sed "s|cfg/mnist.data cfg/mnist_mlp.cfg|small.data mlp.cfg -cmn_seed 7 -cmn_validate 0|; s/cmn_checkpoint 100/cmn_checkpoint 10/; ${2:-}" \
        "$REPO/examples/multi-node/$1" >"$1"
}

# same_as_mpiexec SHAPE WEIGHTS: the bits of the same training without Slurm, which is made once.
same_as_mpiexec() {
    local folder=$BATS_FILE_TMPDIR/$1
    if [[ ! -d $folder ]]; then
        mkdir "$folder"
        sed "s|^backup=.*|backup=$folder|" small.data >mpiexec.data
        on "$1" "$DARKNET" "${train[@]/small.data/mpiexec.data}" >mpiexec.log 2>&1 || { cat mpiexec.log; return 1; }
    fi
    cmp "$folder/mlp.weights" "$2"
}

# until_true WHAT COMMAND...: as long as the whole of a job may take; a test that waits for more is ended by bats.
until_true() {
    wait_for "$@" || { slurm_run squeue; return 1; }
}

says() { [[ $(slurm_says "$1" "$2") == "$3" ]]; }
checkpoints() { [[ $(find out -name '*.checkpoint' | wc -l) -ge 2 ]]; }
event() { grep -E "cmn-run\[[0-9]+\] $1 +" results/mnist/cmn-run.log; }
events() { [[ $(event "$1" | wc -l) -ge $2 ]]; }

# slow_job: restart.sbatch over a link so slow that a step takes some 0.2 s on any machine, until it has made two checkpoints. Sets id.
slow_job() {
    batch_file restart.sbatch
    cluster_throttle 10mbit
    id=$(slurm_run sbatch --parsable restart.sbatch)
    until_true 'two checkpoints' checkpoints
}

# ends_as_undisturbed: the job ends well, with the bits of a training that nobody disturbed.
ends_as_undisturbed() {
    cluster_throttle 10gbit
    until_true 'the end of the job' says "$id" JobState COMPLETED
    cat results/mnist/cmn-run.log
    same_as_mpiexec 2+2 out/mlp.weights
}

@test "srun --mpi=pmix on one node and on three: the bits of mpiexec" {
    while read -r shape nodes ranks; do
        slurm_run timeout $((200 * SLOW)) srun --mpi=pmix -N "$nodes" -n "$ranks" bin/darknet "${train[@]}" >srun.log 2>&1 </dev/null ||
            { cat srun.log; return 1; }
        grep "^cmn: $ranks ranks on $nodes node" srun.log
        same_as_mpiexec "$shape" out/mlp.weights
        rm out/mlp.weights
    done <<<$'3 1 3\n2+1+1 3 4'
}

# alone OPTION...: tasks of a step that do not find each other do not train; sets said to what they say, without srun's lines.
alone() {
    local status=0
    slurm_run timeout $((200 * SLOW)) srun "$@" bin/darknet "${train[@]}" >srun.log 2>&1 || status=$?
    cat srun.log
    [[ $status -eq 1 ]]
    run -0 find out -name '*.weights'
    [[ -z $output ]]
    said=$(grep -v '^srun: ' srun.log)
}

@test "srun without PMIx, or with another PMI: one line, and no training of N times one rank" {
    alone -N 2 -n 3
    [[ $said == 'cmn[rank 0@node1] srun started 3 processes without PMIx, so each of them would be alone: use '*'srun --mpi=pmix'* ]]
    [[ $(wc -l <<<"$said") -eq 1 ]]
    alone -n 2 --mpi=pmi2
}

@test "several trainings of one rank: a step for each" {
    for i in 1 2; do
        sed "s/^backup=.*/backup=out-$i/" small.data >"$i.data"
        mkdir "out-$i"
        slurm_run timeout $((200 * SLOW)) srun -n 1 --exact --mpi=pmix bin/darknet "${train[@]/small.data/$i.data}" >"$i.log" 2>&1 3>&- &
        pids[i]=$!
    done
    wait "${pids[1]}" && wait "${pids[2]}" || { cat ./*.log; return 1; }
    same_as_mpiexec 1 out-1/mlp.weights
    same_as_mpiexec 1 out-2/mlp.weights
}

@test "mnist.sbatch: mpiexec asks Slurm for nodes and ranks" {
    batch_file mnist.sbatch
    id=$(slurm_run sbatch --parsable mnist.sbatch)
    until_true 'the end of the job' says "$id" JobState COMPLETED
    grep '^cmn: 4 ranks on 2 nodes' mnist-*.log
    same_as_mpiexec 2+2 out/mlp.weights
}

@test "cmn-run -hosts within a job: a machine that Slurm has not given is named, and those that it has" {
    status=0
    slurm_run timeout $((200 * SLOW)) salloc -N 2 --ntasks-per-node=2 -w node1,node2 srun -N 1 -n 1 "$BUILD/bin/cmn-run" -hosts node1:2,node3:2 -- \
        bin/darknet "${train[@]}" -cmn_checkpoint 10 >run.log 2>&1 || status=$?
    cat run.log
    [[ $status -eq 1 ]]
    grep -E '^cmn-run: node3:2 cannot be used \(.*; Slurm has given this job node\[1-2\]\): ' run.log
}

@test "restart.sbatch: a killed rank, then scontrol requeue: the same bits in the end" {
    slow_job
    cluster_run kill -KILL "$(slurm_pids node2 '^bin/darknet ' | tail -n 1)"
    until_true 'the second attempt' events resume 1
    event failure | grep 'rank [23].* on node2'
    slurm_run scontrol requeue "$id"
    until_true 'the third start' events resume 2
    [[ $(slurm_says "$id" Restarts) -eq 1 ]]
    ends_as_undisturbed
}

@test "restart.sbatch: the time is over: it saves, is queued again and continues; the same bits in the end" {
    local began
    slow_job
    # Slurm looks at times every 30 s; 100 steps of 0.8 s are not over then.
    cluster_throttle 2mbit
    # One to two minutes are left from now on: the signal is due, and there is time to save.
    began=$(date -d "$(slurm_says "$id" StartTime)" +%s)
    slurm_run scontrol update job "$id" TimeLimit=$((($(date +%s) - began) / 60 + 2))
    until_true 'another start' says "$id" Restarts 1
    slurm_run scontrol update job "$id" TimeLimit=10
    event stop | grep 'signal 10 '
    event end | grep 'asked to stop'
    # It continues from what it saved then.
    saved=$(sed -n 's/.*asked to stop.* ends after iteration \([0-9]*\),.*/\1/p' results/mnist/cmn-run.log)
    until_true 'that it resumes' events resume 1
    event resume | grep "iteration $saved\$"
    ends_as_undisturbed
}

@test "restart.sbatch: a node dies, the job is queued again and continues on others; the same bits in the end" {
    slow_job
    [[ $(slurm_says "$id" NodeList) == 'node[1-2]' ]]
    slurm_node_dies node2
    until_true 'another start' says "$id" Restarts 1
    until_true 'that it resumes' events resume 1
    [[ $(slurm_says "$id" NodeList) == 'node[1,3]' ]]
    slurm_node_returns node2
    ends_as_undisturbed
}

@test "a job that shrinks: cmn-run finds the nodes that are left, and continues on them" {
    mlp_cfg batch=60 max_batches=400 cmn_batch=global >mlp.cfg
    # shellcheck disable=SC2016  # for the job's shell
    printf '%s\n' '#!/bin/bash' 'bin/cmn-run -interval 1 -journal results/mnist/cmn-run.log -discover '"'"'scontrol show hostnames "$(squeue -h -j "$SLURM_JOB_ID" -o %N)" | sed "s/\$/ slots=1/"'"' -- bin/darknet ${train[*]} -cmn_checkpoint 10" >shrink.sbatch
    cluster_throttle 10mbit
    id=$(slurm_run sbatch --parsable --nodes=3 --ntasks-per-node=1 --output=mnist-%j.log shrink.sbatch)
    until_true 'two checkpoints' checkpoints
    slurm_run scontrol update JobId="$id" NumNodes=2
    until_true 'that it resumes' events resume 1
    cluster_throttle 10gbit
    until_true 'the end of the job' says "$id" JobState COMPLETED
    [[ $(event start | wc -l) -eq 2 && $(event start | tail -n 1) == *', 2 ranks: '*'-host node1:1,node2:1 '* ]]
}

@test "restart.sbatch: asked to stop, it saves and is not queued again" {
    slow_job
    slurm_run scancel --batch --signal=TERM "$id"
    until_true 'the end of the job' says "$id" JobState FAILED
    [[ $(slurm_says "$id" ExitCode) == 143:0 && $(slurm_says "$id" Restarts) == 0 ]]
    saved=$(sed -n 's/.*asked to stop.* ends after iteration \([0-9]*\),.*/\1/p' results/mnist/cmn-run.log)
    [[ -e out/mlp-$saved.checkpoint && -e out/mlp.weights ]]
}

@test "restart.sbatch: a job that fails for ever is queued again as often as it says" {
    # shellcheck disable=SC2016  # expanded by the rank
    batch_file restart.sbatch 's/^requeues=.*/requeues=1/; s/-n "$SLURM_NTASKS"/-retries 0 &/; s/bin.darknet classifier/sh -c '\''kill -KILL $$'\''/'
    grep -A 1 '^bin/cmn-run' restart.sbatch
    id=$(slurm_run sbatch --parsable restart.sbatch)
    until_true 'the end of the job' says "$id" JobState FAILED
    cat "mnist-$id.log"
    [[ $(slurm_says "$id" Restarts) -eq 1 && $(slurm_says "$id" ExitCode) == 75:0 ]]
    [[ $(event start | wc -l) -eq 2 ]]
    grep "^restart.sbatch: gives up: job $id was queued again 1 times, and may be 1 times" "mnist-$id.log"
}

@test "gpu.sbatch: each rank sees all GPUs of its node, and its own number" {
    # shellcheck disable=SC2016  # expanded by the rank
    sed 's/^#SBATCH --\(ntasks\|gpus\)-per-node=.*/#SBATCH --\1-per-node=2/; s/^#SBATCH --cpus-per-task=.*/#SBATCH --cpus-per-task=2/
        s/bin.darknet-gpu .*/sh -c '\''echo $(hostname) $SLURM_LOCALID $CUDA_VISIBLE_DEVICES'\''/' "$REPO/examples/multi-node/gpu.sbatch" >gpu.sbatch
    slurm_run sbatch --test-only gpu.sbatch
    slurm_run timeout $((200 * SLOW)) sbatch --wait gpu.sbatch || { cat gpu-*.log; return 1; }
    cat gpu-*.log
    [[ $(grep ^node gpu-*.log | sort | xargs) == 'node1 0 0,1 node1 1 0,1 node2 0 0,1 node2 1 0,1' ]]
}
