#!/usr/bin/env bats
# shellcheck disable=SC2030,SC2031,SC2154  # mpiexec: helpers.bash; tests are functions that shellcheck takes for subshells
# A rank is stopped or stalled, wherever it is: the job ends after cmn_timeout, and names rank, host and phase. On two
# nodes: tests/hosts/watchdog.bats.

load helpers

setup() {
    enter_folder
    small_data 600 20
    mlp_cfg max_batches=10000000 >mlp.cfg
    # A rank that works must not seem to be stopped.
    LIMIT=$(on_busy $((SLOW == 1 ? 2 : 8)))
}

teardown() {
    local pid
    for pid in ${ranks:-} ${reader:-}; do
        kill -KILL "$pid" 2>/dev/null || true
    done
    [[ -z ${job:-} ]] || kill -KILL "$job" 2>/dev/null || true
}

# start N ARGUMENTS...: `darknet` in the background. Sets job.
start() {
    local n=$1
    shift
    rm -f job.out job.err # of the job before
    "${mpiexec[@]}" -n "$n" "$DARKNET" "$@" -cmn_timeout "$LIMIT" >job.out 2>job.err 3>&- &
    job=$!
}

# until_said FILE PATTERN: it is printed.
until_said() {
    local i
    for ((i = 0; i < 2000 * SLOW; i++)); do
        grep -aEqs "$2" "$1" && return 0
        ! gone "$job" || break
        sleep 0.1
    done
    echo "$1 never had: $2"
    cat job.out job.err
    return 1
}

# Sets ranks to the process ids, in the order of the ranks; to nothing where the job has ended.
find_ranks() {
    local pid rank children
    declare -A of=()
    children=$(pgrep -P "$job" || true)
    for pid in $children; do
        rank=$(sed -nz 's/^OMPI_COMM_WORLD_RANK=//p' "/proc/$pid/environ" 2>/dev/null | tr -d '\0' || true)
        [[ -z $rank ]] || of[$rank]=$pid
    done
    ranks=
    for ((rank = 0; rank < ${#of[@]}; rank++)); do
        ranks+=" ${of[$rank]}"
    done
}

stop_rank() {
    find_ranks
    # shellcheck disable=SC2086
    set -- $1 $ranks
    kill -STOP "${@:$1+2:1}"
    stopped=$SECONDS
}

# ends_naming RANK PATTERN [FRAME]: with status 75, one line of ours, the stacks of ranks that live, and nothing left.
ends_naming() {
    job_ended "$job" || { cat job.err; return 1; }
    echo "status $ended, $((SECONDS - ${stopped:-0})) s after the fault"
    grep -av '#[0-9]' job.err
    [[ $ended -eq 75 ]]
    grep -aE "^cmn\[rank $1@$(hostname)\] nothing moved for $LIMIT s \(cmn_timeout\): $2" job.err
    [[ $(grep -ac 'nothing moved for' job.err) -eq 1 ]]
    grep -aqE "^cmn\[rank $1@.*\] stack of the main thread, in: " job.err
    grep -aqE "^cmn\[rank $1@.*\] #[0-9]+ ${3:-(cmn_|main\\+).* \\(darknet\\)}" job.err
    # shellcheck disable=SC2086
    all_gone ${ranks:-}
}

train() {
    start "$1" classifier train small.data mlp.cfg -cmn -cmn_seed 7 "${@:2}"
}

@test "a rank is stopped while it trains: any rank, over MPI and over shared memory" {
    train 3 -cmn_validate 0 -cmn_communicator naive
    until_said job.err 'Saving weights'
    stop_rank 1
    ends_naming 0 "rank 1@[^ ]+ is stopped \(SIGSTOP\?\) in: .*iteration [0-9]+.*; 2 other ranks wait for it in: "
    small_data 60000 20 # long epochs: ranks meet in the sum, and hardly ever in a row of the report
    train 2 -cmn_validate 0 -cmn_communicator shm
    until_said job.out '^5, '
    stop_rank 0
    ends_naming 1 "rank 0@[^ ]+ is stopped .*; 1 other rank waits for it in: the sum of the gradients"
}

# The others continue until they need it: in the sum of the gradients, or at the first barrier.
# bats test_tags=alexeyab
@test "an image that is never read: a FIFO among the images" {
    mkfifo fifo-digit-3.png
    sed -i '40s/.*/fifo-digit-3.png/' train.list
    train 2 -cmn_validate 0
    stopped=$SECONDS
    until_said job.err '^ *layer '
    find_ranks
    ends_naming '[01]' 'rank [01]@[^ ]+ is stalled in: .* \(fifo-digit-3.png\)'
}

@test "an image that is never read in a validation, and in an evaluation" {
    mkfifo fifo-digit-3.png
    small_data 60 20
    mlp_cfg max_batches=1 >mlp.cfg
    darknet_on 1 classifier train small.data mlp.cfg -cmn -cmn_validate 0 >/dev/null 2>&1
    sed -i '5s/.*/fifo-digit-3.png/' valid.list
    start 2 classifier valid small.data mlp.cfg out/mlp.weights -cmn
    stopped=$SECONDS
    ends_naming '[01]' 'rank 0@[^ ]+ is stalled in: .*\(fifo-digit-3.png\).*; 1 other rank waits for it in: evaluation'
    train 2 -clear
    stopped=$SECONDS
    ends_naming '[01]' 'rank 0@[^ ]+ is stalled in: .*\(fifo-digit-3.png\).*; 1 other rank waits for it in: validation'
}

@test "weights that are never read, at the start" {
    mkfifo some.weights
    start 2 classifier train small.data mlp.cfg some.weights -cmn
    stopped=$SECONDS
    ends_naming '[01]' 'rank 0@[^ ]+ is stalled in: reading cfg, lists and weights; 1 other rank waits for it'
}

# The main thread then holds the lock of stdout.
@test "a reader of the output that stops reading" {
    mkfifo unread
    # shellcheck disable=SC2217  # it holds the FIFO open
    sleep 1000 <unread 3>&- &
    reader=$! # for teardown
    sed -i 's/^batch=.*/batch=4/' mlp.cfg
    "${mpiexec[@]}" -n 1 bash -c 'exec >unread; exec "$@"' - "$DARKNET" classifier train small.data mlp.cfg -cmn -cmn_validate 0 \
        -cmn_timeout "$LIMIT" >job.out 2>job.err 3>&- &
    job=$!
    stopped=$SECONDS
    ends_naming 0 'rank 0@[^ ]+ is stalled in: '
}

# preload: what stands in calls.c comes before the C library and MPI, in every rank.
preload() {
    mpicc -O1 -fPIC -shared -o calls.so calls.c
    mpiexec+=(-x LD_LIBRARY_PATH="$PWD" -x "LD_PRELOAD=calls.so:${LD_PRELOAD:-}")
}

@test "a disk that no longer answers, under a checkpoint and under weights" {
    [[ -z $SAN ]] || skip 'the sanitizers must be loaded first'
    cat >calls.c <<'END'
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A file that is being written has no name, until it is whole. */
int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags)
{
    while (strstr(to, STUCK)) {
        pause();
    }
    return (int)syscall(SYS_linkat, from_folder, from, to_folder, to, flags);
}

int rename(const char *from, const char *to)
{
    while (strstr(to, STUCK)) {
        pause();
    }
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}
END
    sed -i "1i#define STUCK \"-5.checkpoint\"" calls.c
    preload
    train 2 -cmn_validate 0 -cmn_checkpoint 5
    stopped=$SECONDS
    ends_naming 0 'rank 0@[^ ]+ is stalled in: waiting for the last checkpoint to be written'
    sed -i "1s/.*/#define STUCK \".weights\"/" calls.c
    preload
    train 2 -cmn_validate 0
    stopped=$SECONDS
    ends_naming 0 'rank 0@[^ ]+ is stalled in: writing weights, iteration [0-9]+; 1 other rank waits for it in: '
}

@test "a rank that never comes through the end of MPI" {
    [[ -z $SAN ]] || skip 'the sanitizers must be loaded first'
    cat >calls.c <<'END'
#include <mpi.h>
#include <stdlib.h>
#include <unistd.h>

int MPI_Finalize(void)
{
    while (atoi(getenv("OMPI_COMM_WORLD_RANK")) == 1) {
        pause();
    }
    return PMPI_Finalize();
}
END
    preload
    mlp_cfg max_batches=5 >mlp.cfg
    train 2 -cmn_validate 0
    stopped=$SECONDS
    ends_naming 0 'all ranks wait for each other: rank 0@[^ ]+ in: the end of MPI, .*rank 1@[^ ]+ in: the end of MPI' 'darknet\+0x'
}

# It lets each rank go once all have met, and these end.
@test "a rank that is stopped or stalled after all have met in the end of MPI" {
    [[ -z $SAN ]] || skip 'the sanitizers must be loaded first'
    cat >calls.c <<'END'
#include <mpi.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

int MPI_Finalize(void)
{
    int result = PMPI_Finalize();

    if (atoi(getenv("OMPI_COMM_WORLD_RANK")) == 1) {
        STOP_HERE;
    }
    return result;
}
END
    cp calls.c either.c
    mlp_cfg max_batches=5 >mlp.cfg
    sed 's/STOP_HERE/kill(getpid(), SIGSTOP)/' either.c >calls.c
    preload
    train 2 -cmn_validate 0 -clear
    stopped=$SECONDS
    ends_naming 0 'rank 1@[^ ]+ is stopped \(SIGSTOP\?\) in: the end of MPI' 'darknet\+0x'
    sed 's/STOP_HERE/for (;;) pause()/' either.c >calls.c
    preload
    train 2 -cmn_validate 0 -clear
    stopped=$SECONDS
    ends_naming 0 'not all ranks come through the end of MPI: rank 1@[^ ]+ does not' '(cmn_watchdog_close|darknet\+0x)'
    # A library that takes its time there, as tracers do.
    sed "s/STOP_HERE/sleep($(((LIMIT + 1) / 2)))/" either.c >calls.c
    preload
    train 2 -cmn_validate 0 -clear
    job_ended "$job"
    [[ $ended -eq 0 ]]
    run -1 grep -a 'nothing moved' job.err
}

# No memory in common: the watchdogs know their own rank alone, and each wait is bounded.
@test "ranks of a node that cannot share memory are told so, and end all the same" {
    [[ -z $SAN ]] || skip 'the sanitizers must be loaded first'
    cat >calls.c <<'END'
#include <dlfcn.h>
#include <errno.h>
#include <sys/syscall.h>

long syscall(long number, long a, long b, long c, long d, long e, long f)
{
    long (*real)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");

    if (number == SYS_memfd_create) {
        errno = ENOSYS;
        return -1;
    }
    return real(number, a, b, c, d, e, f);
}
END
    sed -i '1i#define _GNU_SOURCE' calls.c
    preload
    train 2 -cmn_validate 0 -cmn_communicator naive
    until_said job.err 'Saving weights'
    grep -aE 'the watchdogs of a node cannot see each other: a shared window .*Function not implemented' job.err
    stop_rank 1
    job_ended "$job"
    cat job.err
    [[ $ended -eq 75 ]]
    grep -aE "^cmn\[rank 0@$(hostname)\] nothing moved for $LIMIT s" job.err
}

@test "a job that is suspended as a whole resumes" {
    train 2 -cmn_validate 0
    until_said job.err 'Saving weights'
    find_ranks
    # shellcheck disable=SC2086
    kill -STOP $ranks
    sleep $((LIMIT + 2))
    saved=$(grep -ac 'Saving weights' job.err)
    # shellcheck disable=SC2086
    kill -CONT $ranks
    more_saved() { (($(grep -ac 'Saving weights' job.err) > saved + 1)) || gone "$job"; }
    wait_for 'more weights' more_saved
    # mpiexec does not kill after this one.
    kill -USR1 "$job"
    job_ended "$job"
    cat job.err
    run -1 grep -a 'nothing moved' job.err
    grep -aq 'asked to stop' job.err
    [[ -s out/mlp$FINAL.weights ]]
}
