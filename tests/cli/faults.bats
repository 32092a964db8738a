#!/usr/bin/env bats
# shellcheck disable=SC2030,SC2031,SC2154  # mpiexec: helpers.bash; tests are functions that shellcheck takes for subshells
# Ranks that die, and people who stop a training: the job ends, says who, and the weights are there.

load helpers

setup() {
    enter_folder
    small_data 12000 50
    # About a second an epoch, and no end of its own.
    net_section batch=100 max_batches=10000000 >big.cfg
    printf '%s\n' '[connected]' 'output=250' 'activation=relu' '[connected]' 'output=250' 'activation=relu' \
        '[connected]' 'output=10' 'activation=linear' '[softmax]' >>big.cfg
    each=100 # images of a rank's step
    # Three channels, own matrix products, 32 loader threads a rank, and 100 steps to the first save.
    pjreddies || { each=20 && sed -i "s/output=250/output=150/; s/^batch=.*/batch=$each/" big.cfg; }
    # What `make` gives: time to write the weights between SIGTERM and SIGKILL.
    export OMPI_MCA_odls_base_sigkill_timeout=$((3 * SLOW))
}

teardown() {
    # shellcheck disable=SC2086
    [[ -z ${job:-} ]] || kill -KILL "$job" ${ranks:-} 2>/dev/null || true
}

# What start waits for: weights that were saved on the way.
started() {
    [[ -n $(saved big) ]]
}

started_or_ended() {
    started || gone "$job"
}

# start N ARGUMENTS...: trains in the background until it has started. Sets job (mpiexec), ranks (their
# process ids), shared (their files in /dev/shm) and before (the images of the newest weights).
start() {
    local n=$1 pid
    shift
    "${mpiexec[@]}" -n "$n" "$DARKNET" classifier train small.data big.cfg -cmn -cmn_seed 7 "$@" >job.out 2>job.err 3>&- &
    job=$!
    wait_for 'weights, or the end' started_or_ended
    started || { cat job.err; return 1; }
    before=$(seen "$(saved big)" 2>/dev/null) || before=0
    ranks=$(pgrep -P "$job")
    [[ $(wc -w <<<"$ranks") -eq $n ]]
    shared=
    for pid in $ranks; do
        shared+=" $(grep -o '/dev/shm/[^ ]*' "/proc/$pid/maps" | sort -u | tr '\n' ' ')"
    done
}

pid_of_rank() {
    local pid
    for pid in $ranks; do
        if tr '\0' '\n' <"/proc/$pid/environ" | grep -qx "OMPI_COMM_WORLD_RANK=$1"; then
            echo "$pid"
        fi
    done
}

# The job ends; sets ended to its status.
ends() {
    local begin=$SECONDS
    job_ended "$job"
    echo "status $ended after $((SECONDS - begin)) s"
    sed 's/^/  err: /' job.err
}

# stop N WHOM SIGNAL ARGUMENTS...: trains on N ranks, sends the signal to mpiexec or to the rank of that number, and waits for the
# end. On a busy machine they get more time; Open MPI 4 takes twice what it is told. Open MPI 5's mpiexec leaves 0.25 s for the
# iteration and the saves after any signal but SIGUSR1, so it gets that one.
stop() {
    local n=$1 whom=$2 signal=$3 OMPI_MCA_odls_base_sigkill_timeout=$OMPI_MCA_odls_base_sigkill_timeout
    shift 3
    ((OMPI_MCA_odls_base_sigkill_timeout += $(on_busy 0) / 2, 1))
    export OMPI_MCA_odls_base_sigkill_timeout
    start "$n" "$@"
    if [[ $whom == mpiexec ]]; then
        [[ $(patient_stop) == TERM ]] || signal=USR1
        kill -s "$signal" "$job"
    else
        kill -s "$signal" "$(pid_of_rank "$whom")"
    fi
    ends
}

# Nothing is left: no process, no shared memory, no half-written weights; of the lock a file that names a process which is gone.
nothing_left() {
    local file
    # shellcheck disable=SC2086
    all_gone $ranks
    for file in $shared; do
        [[ ! -e $file ]] || { echo "$file is left"; return 1; }
    done
    [[ ! -e out/.big.checkpoint-lock ]] || gone "$(awk 'NR == 1 { print $2 }' out/.big.checkpoint-lock)" || { echo 'the lock is held'; return 1; }
    run -0 find out -type f ! -name '*.weights' ! -name '*.json' ! -name '*.backup' ! -name .big.checkpoint-lock
    [[ -z $output ]] || { echo "left in the backup folder: $output"; return 1; }
}

# loads FILE: Darknet takes it, whole.
loads() {
    "$DARKNET" classifier valid small.data big.cfg "$1" >loads.out 2>loads.err
    run -1 grep -iE 'trunc|ends|more values|short' loads.err
    grep -q 'top 1' loads.out
}

@test "SIGKILL of a rank ends the job, names rank and host, keeps the last weights" {
    start 3
    kill -KILL "$(pid_of_rank 1)"
    ends
    [[ $ended -ne 0 ]]
    grep -E "rank 1\b.*(@| node )$(hostname)" job.err
    nothing_left
    loads "$(saved big)"
}

# stops_cleanly: the weights of the moment of the signal are saved. An epoch may end after it: those weights are younger.
stops_cleanly() {
    [[ $ended -ne 0 ]]
    [[ -s out/big$FINAL.weights ]]
    loads "out/big$FINAL.weights"
    [[ $(seen "out/big$FINAL.weights") -ge $before ]]
    [[ $(grep -c '^cmn: asked to stop' job.err) -eq 1 ]]
    nothing_left
}

# bats test_tags=alexeyab
@test "SIGTERM to mpiexec, weights saved" {
    stop 3 mpiexec TERM
    stops_cleanly
}

@test "SIGINT to one rank alone stops all of them" {
    stop 3 2 INT
    stops_cleanly
}

# Without validation the ranks meet only where weights are saved: once an epoch of 60 steps.
@test "Ctrl-C with local steps, where the ranks meet only to save" {
    [[ -z $SAN ]] || small_data 3000 50 # as long as mpiexec waits before it kills
    stop 2 mpiexec INT -cmn_validate 0 -cmn_local_steps 1000
    stops_cleanly
}

# mpiexec would not wait for it: the ranks meet after up to 80 steps.
@test "SIGINT to a rank with local steps and double buffering, where a mean arrives while weights are saved" {
    stop 2 1 INT -cmn_validate 0 -cmn_local_steps 40 -cmn_double_buffering 1
    stops_cleanly
}

@test "Ctrl-C in a real terminal" {
    command -v script >/dev/null || skip 'script (bsdutils) is not installed'
    [[ $(patient_stop) == TERM ]] || skip 'Open MPI 5 kills the ranks 0.5 s after Ctrl-C'
    ((OMPI_MCA_odls_base_sigkill_timeout += $(on_busy 0) / 2, 1))
    command=$(printf '%q ' "${mpiexec[@]}" -n 2 "$DARKNET" classifier train small.data big.cfg -cmn)
    # script passes on what it reads: after the first weights, the character of Ctrl-C. It ends its command where what it reads ends.
    (
        wait_for 'weights' started
        printf '\003'
        wait_for 'the end' test -e ended
    ) | timeout $((500 * SLOW)) script -qec "trap : INT; $command; touch ended" screen.txt >/dev/null 3>&- || true
    cat screen.txt
    [[ -s out/big$FINAL.weights ]]
    loads "out/big$FINAL.weights"
    grep -q 'asked to stop' screen.txt
}

@test "Ctrl-C: SIGINT to mpiexec, weights saved, from which the training resumes" {
    stop 2 mpiexec INT
    stops_cleanly
    before=$(seen "out/big$FINAL.weights")
    cp "out/big$FINAL.weights" stopped.weights
    rm out/*
    sed -i "s/^max_batches=.*/max_batches=$((before / (2 * each) + 5))/" big.cfg
    darknet_on 2 classifier train small.data big.cfg stopped.weights -cmn -cmn_validate 0
    [[ $(seen "out/big$FINAL.weights") -eq $((before + 10 * each)) ]]
}

@test "a backup folder that vanishes while training: one line, the end" {
    start 2 -cmn_validate 0
    # It writes nothing meanwhile.
    writer=$(pid_of_rank 0)
    kill -STOP "$writer"
    wait_for 'its stop' grep -q '^State:.T' "/proc/$writer/status"
    mv out gone
    touch out
    kill -CONT "$writer"
    ends
    [[ $ended -ne 0 ]]
    own_lines job.err | grep -E '^cmn\[rank 0@.*out/big.*Not a directory'
    [[ $(own_lines job.err | wc -l) -eq 1 ]]
    rm out
    mv gone out
    loads "$(saved big)"
}
