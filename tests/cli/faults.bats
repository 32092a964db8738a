#!/usr/bin/env bats
# shellcheck disable=SC2030,SC2031,SC2154  # mpiexec: helpers.bash; tests are functions that shellcheck takes for subshells
# Ranks that die, and people who stop a training: the job ends, says who, and the weights are there.

load helpers

setup() {
    enter_folder
    small_data 12000 50
    # About a second an epoch, and no end of its own.
    net_section batch=100 max_batches=10000000 >big.cfg
    printf '%s\n' '[connected]' 'output=500' 'activation=relu' '[connected]' 'output=500' 'activation=relu' \
        '[connected]' 'output=10' 'activation=linear' '[softmax]' >>big.cfg
    each=100 # images of a rank's step
    # Three channels, own matrix products, 32 loader threads a rank, and 100 steps to the first save.
    pjreddies || { each=20 && sed -i "s/output=500/output=150/; s/^batch=.*/batch=$each/" big.cfg; }
    # What `make` gives: time to write the weights between SIGTERM and SIGKILL.
    export OMPI_MCA_odls_base_sigkill_timeout=$((3 * SLOW))
}

teardown() {
    [[ -z ${job:-} ]] || kill -KILL "$job" 2>/dev/null || true
    for pid in ${ranks:-}; do
        kill -KILL "$pid" 2>/dev/null || true
    done
}

# What start waits for: weights that were saved on the way.
started() {
    [[ -n $(saved big) ]]
}

# start N ARGUMENTS...: trains in the background until it has started. Sets job (mpiexec), ranks (their
# process ids), shared (their files in /dev/shm) and before (the images of the newest weights).
start() {
    local n=$1 pid
    shift
    "${mpiexec[@]}" -n "$n" "$DARKNET" classifier train small.data big.cfg -cmn -cmn_seed 7 "$@" >job.out 2>job.err 3>&- &
    job=$!
    for ((i = 0; i < 300 * SLOW; i++)); do
        ! started || break
        kill -0 "$job" || { cat job.err; return 1; }
        sleep 0.2
    done
    started
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

# The job ends within 10 seconds; sets ended to its status.
ends_in_time() {
    local begin=$SECONDS
    ended=0
    timeout $((10 * SLOW)) tail --pid="$job" -f /dev/null || { echo 'it did not end in time'; return 1; }
    wait "$job" || ended=$?
    echo "status $ended after $((SECONDS - begin)) s"
    sed 's/^/  err: /' job.err
}

# Nothing is left: no process, no shared memory, no half-written weights; of the lock a file that nobody holds.
nothing_left() {
    local file
    # shellcheck disable=SC2086
    all_gone $ranks
    for file in $shared; do
        [[ ! -e $file ]] || { echo "$file is left"; return 1; }
    done
    [[ ! -e out/.big.checkpoint-lock ]] || flock -n out/.big.checkpoint-lock true || { echo 'the lock is held'; return 1; }
    run -0 find out -type f ! -name '*.weights' ! -name '*.json' ! -name '*.backup' ! -name .big.checkpoint-lock
    [[ -z $output ]] || { echo "left in the backup folder: $output"; return 1; }
}

# loads FILE: Darknet takes it, whole.
loads() {
    "$DARKNET" classifier valid small.data big.cfg "$1" >loads.out 2>loads.err
    run -1 grep -iE 'trunc|ends|more values|short' loads.err
    grep -q 'top 1' loads.out
}

# bats test_tags=alexeyab
@test "SIGKILL of a rank ends the job, names rank and host, keeps the last weights" {
    start 3
    kill -KILL "$(pid_of_rank 1)"
    ends_in_time
    [[ $ended -ne 0 ]]
    grep -E "rank 1\b.*(@| node )$(hostname)" job.err
    nothing_left
    loads "$(saved big)"
}

@test "SIGKILL of rank 0, who writes the weights" {
    start 2
    kill -KILL "$(pid_of_rank 0)"
    ends_in_time
    [[ $ended -ne 0 ]]
    grep -E "rank 0\b.*(@| node )$(hostname)" job.err
    for file in out/*.weights; do
        loads "$file"
    done
}

@test "SIGSEGV of a rank" {
    [[ -z $SAN ]] || skip 'the sanitizer takes the signal, and ends with a status of its own'
    start 2
    kill -SEGV "$(pid_of_rank 1)"
    ends_in_time
    [[ $ended -ne 0 ]]
    grep -E "rank 1\b.*(@| node )$(hostname)" job.err
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

@test "Ctrl-C: SIGINT to mpiexec, weights saved" {
    start 2
    kill -INT "$job"
    ends_in_time
    stops_cleanly
}

# bats test_tags=alexeyab
@test "SIGTERM to mpiexec, weights saved" {
    start 3
    kill -TERM "$job"
    ends_in_time
    stops_cleanly
}

@test "SIGINT to one rank alone stops all of them" {
    start 3
    kill -INT "$(pid_of_rank 2)"
    ends_in_time
    stops_cleanly
}

# Without validation the ranks meet only where weights are saved: once an epoch of 60 steps.
@test "Ctrl-C with local steps, where the ranks meet only to save" {
    [[ -z $SAN ]] || small_data 3000 50 # as long as mpiexec waits before it kills
    start 2 -cmn_validate 0 -cmn_local_steps 1000
    kill -INT "$job"
    ends_in_time
    stops_cleanly
}

@test "Ctrl-C with local steps and double buffering, where a mean arrives while weights are saved" {
    start 2 -cmn_validate 0 -cmn_local_steps 40 -cmn_double_buffering 1
    kill -INT "$job"
    ends_in_time
    stops_cleanly
}

# An iteration of many micro-batches takes longer than mpiexec waits before it kills.
@test "SIGTERM in the middle of a long iteration: the weights of the one before are saved" {
    batch=20000
    export OMPI_MCA_odls_base_sigkill_timeout=1
    if ! pjreddies; then
        batch=6000
        started() { grep -qs iteration out/big.json; } # its first save comes after 100 iterations
        sed -i s/output=150/output=1500/ big.cfg # it computes, and does not wait for images
    fi
    sed -i "s/^batch=.*/batch=$batch/; s/^subdivisions=.*/subdivisions=$((batch / 100))/" big.cfg
    start 2
    kill -TERM "$job"
    ends_in_time
    [[ $ended -ne 0 ]]
    loads "out/big$FINAL.weights"
    images=$(seen "out/big$FINAL.weights")
    [[ $images -gt 0 && $((images % (2 * batch))) -eq 0 ]]
    ! pjreddies || ((images >= $(seen "$(saved big)")))
}

# Weights hardly change here, and rolling statistics are 97 % there after epoch 6. Rank 1 stands still, so that what rank 0
# saves at once is not replaced by the common end.
@test "a signal in the middle of an iteration: rolling statistics are those of all ranks, about" {
    not_offered 'weights of each epoch'
    net_section batch=4000 subdivisions=20 max_batches=10000000 learning_rate=.000001 cmn_batch=global >big.cfg
    printf '%s\n' '[convolutional]' batch_normalize=1 filters=8 size=5 stride=2 pad=1 activation=leaky \
        '[connected]' output=10 activation=linear '[softmax]' >>big.cfg
    for attempt in {1..8}; do # rank 0 may just have waited for rank 1, on a busy machine more often than not
        start 2 -cmn_validate 0
        for ((i = 0; i < 150 * SLOW; i++)); do
            [[ ! -s out/big_6.weights ]] || break
            sleep 0.2
        done
        cp out/big_6.weights earlier.weights
        kill -STOP "$(pid_of_rank 1)"
        kill -TERM "$(pid_of_rank 0)"
        for ((i = 0; i < 20; i++)); do
            [[ ! -s out/big$FINAL.weights ]] || break
            sleep 0.2
        done
        # shellcheck disable=SC2086
        kill -KILL "$job" $ranks
        [[ ! -s out/big$FINAL.weights ]] || break
        rm -f out/*
    done
    d=$("$COMPARE_WEIGHTS" earlier.weights "out/big$FINAL.weights" | sed -n 's/^relative-l2 //p')
    echo "attempt $attempt: relative L2 $d" # 0.02; 0.08 where a step's scaling is not taken back
    awk -v d="$d" 'BEGIN { exit !(d ~ /^[0-9]/ && d + 0 < .04) }'
}

@test "Ctrl-C in a real terminal" {
    command -v script >/dev/null || skip 'script (bsdutils) is not installed'
    command=$(printf '%q ' "${mpiexec[@]}" -n 2 "$DARKNET" classifier train small.data big.cfg -cmn)
    # script passes on what it reads: after the first epoch, the character of Ctrl-C.
    (
        for ((i = 0; i < 300 * SLOW; i++)); do
            [[ ! -s out/big_1.weights ]] || break
            sleep 0.2
        done
        printf '\003'
        # script ends its command where what it reads ends.
        for ((i = 0; i < 60 * SLOW; i++)); do
            [[ ! -e ended ]] || break
            sleep 0.2
        done
    ) | timeout $((120 * SLOW)) script -qec "$command; touch ended" screen.txt >/dev/null 3>&- || true
    [[ -s out/big$FINAL.weights ]]
    loads "out/big$FINAL.weights"
    grep -q 'asked to stop' screen.txt
}

@test "a stopped training resumes from its weights" {
    start 2
    kill -INT "$job"
    ends_in_time
    before=$(seen "out/big$FINAL.weights")
    cp "out/big$FINAL.weights" stopped.weights
    rm out/*
    sed -i "s/^max_batches=.*/max_batches=$((before / (2 * each) + 5))/" big.cfg
    darknet_on 2 classifier train small.data big.cfg stopped.weights -cmn -cmn_validate 0
    [[ $(seen "out/big$FINAL.weights") -eq $((before + 10 * each)) ]]
}

@test "a backup folder that vanishes while training: one line, the end" {
    start 2
    mv out gone
    touch out
    ends_in_time
    [[ $ended -ne 0 ]]
    own_lines job.err | grep -E '^cmn\[rank 0@.*out/big.*Not a directory'
    [[ $(own_lines job.err | wc -l) -eq 1 ]]
    rm out
    mv gone out
    loads "$(saved big)"
}
