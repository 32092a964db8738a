#!/usr/bin/env bats
# shellcheck disable=SC2030,SC2031,SC2154  # tests are functions that shellcheck takes for subshells
# cmn-run over real jobs: how signals reach the ranks, and what is left when it ends. Faults in real trainings are in tests/soak.sh.

load helpers
load restart

setup() {
    enter_folder
}

# job ARGUMENTS...: starts cmn-run over mpiexec in the background, each rank of it a script that says what it gets; waits until both
# do. As in MPI_Finalize no rank ends before the others have saved.
job() {
    cat >rank <<'END'
#!/bin/bash
set -u
me=rank-$OMPI_COMM_WORLD_RANK
trap 'echo INT >>$me' INT
trap 'echo TERM >>$me' TERM
trap 'echo USR1 >>$me; printf "cmn-event:%s {\"kind\":\"stop\",\"rank\":%d,\"host\":\"a\",\"phase\":\"\",\"iteration\":1,\"text\":\"\"}\n" "$OMPI_CMN_EVENT_TOKEN" "$OMPI_COMM_WORLD_RANK" >&2; sleep 1.2; echo saved >>$me; trap : TERM; until grep -q saved rank-0 && grep -q saved rank-1; do sleep 0.05; done; exit 143' USR1
echo "$$" >$me.pid
for ((i = 0; i < 6000; i++)); do sleep 0.1; done
END
    chmod +x rank
    rm -f rank-* cmn-run.log
    mpi=("${mpiexec[@]:1}")
    "$CMN_RUN" -n 2 -mpi "${mpi[*]}" -- ./rank -cmn -cmn_checkpoint 5 >run.out 2>run.err 3>&- &
    started=$!
    wait_for 'both ranks' test -s rank-0.pid -a -s rank-1.pid
    ranks="$(<rank-0.pid) $(<rank-1.pid)"
}

@test "SIGINT, SIGTERM and SIGUSR1: every rank is told once, has its time to save, and nothing is started again" {
    for signal in INT:130 TERM:143 USR1:138; do
        job
        kill -s "${signal%:*}" "$started"
        status=0
        wait "$started" || status=$?
        cat cmn-run.log run.err
        [[ $status -eq ${signal#*:} ]]
        for rank in 0 1; do
            [[ $(xargs <"rank-$rank") == 'USR1 saved' ]]
        done
        grep -Eq 'stop .*asked to save' cmn-run.log
        # mpiexec has nothing to add.
        run -1 grep -E -- '-----|exit code' run.err
        [[ $(grep -c 'start   ' cmn-run.log) -eq 1 ]]
        # shellcheck disable=SC2086
        all_gone $ranks # they would write into the files of the next job
    done
}

@test "an output that nobody reads any more ends the job by its name; a closed descriptor does not" {
    mpi=("${mpiexec[@]:1}")
    status=0
    "$CMN_RUN" -retries 3 -n 1 -mpi "${mpi[*]}" -- bash -c 'for i in {1..20}; do echo line; sleep 0.1; done' -cmn -cmn_checkpoint 5 \
        2>run.err > >(read -r _) || status=$?
    cat run.err
    [[ $status -eq 141 && $(grep -c 'start   ' cmn-run.log) -eq 1 ]]
    grep 'nobody reads' run.err
    timeout "$HANG_LIMIT" "$CMN_RUN" -retries 0 -n 1 -mpi "${mpi[*]}" -- bash -c 'echo said >&2; echo line' -cmn 2>&- >run.out
    [[ $(<run.out) == line ]]
    rm cmn-run.log
    timeout "$HANG_LIMIT" "$CMN_RUN" -retries 0 -n 1 -mpi "${mpi[*]}" -- bash -c 'echo said >&2' -cmn <&- >&- 2>&-
    run -1 grep '^said' cmn-run.log
}

@test "people may have mpiexec export variables of their own, and each rank has the token" {
    mpi=("${mpiexec[@]:1}")
    # shellcheck disable=SC2016  # for the ranks
    OMPI_MCA_mca_base_env_list=OWN=mine "$CMN_RUN" -retries 0 -n 2 -mpi "${mpi[*]}" -- \
        bash -c 'echo "$OWN, ${#OMPI_CMN_EVENT_TOKEN} digits"' -cmn >run.out 2>run.err
    cat run.out run.err
    [[ $(<run.out) == $'mine, 20 digits\nmine, 20 digits' ]]
}

# training ARGUMENTS...: starts cmn-run over a real training without an end, in the background.
training() {
    small_data 240 20
    mlp_cfg batch=24 max_batches=2000000 >mlp.cfg
    mpi=("${mpiexec[@]:1}")
    "$CMN_RUN" -n 2 -mpi "${mpi[*]}" -- "$DARKNET" classifier train small.data mlp.cfg -cmn -cmn_validate 0 "$@" >run.out 2>run.err 3>&- &
    started=$!
}

@test "a training tells cmn-run that it lives, and that it has ended well" {
    small_data 240 20
    mlp_cfg batch=24 max_batches=2000000 >mlp.cfg
    OMPI_CMN_EVENT_TOKEN=4711 "$DARKNET" classifier train small.data mlp.cfg -cmn -cmn_validate 0 >run.out 2>run.err 3>&- &
    started=$!
    wait_for 'a sign of life' grep -q '^cmn-event:4711 {"kind":"alive","rank":0,' run.err
    run -1 grep '"kind":"end"' run.err
    kill -INT "$started"
    wait "$started" || true
    grep '^cmn-event:4711 {"kind":"end","rank":0,' run.err
}

@test "a stop in the first moments of a training, wherever it is by then" {
    for delay in 0.05 0.2; do
        training -cmn_checkpoint 100000
        sleep "$delay"
        kill -TERM "$started"
        wait_for 'the end' gone "$started"
        status=0
        wait "$started" || status=$?
        [[ $status -eq 143 ]]
    done
}

@test "cmn_report=quiet: that a training has heard the stop is said all the same" {
    training -cmn_checkpoint 5 -cmn_report quiet
    wait_for 'a checkpoint' compgen -G 'out/*.checkpoint'
    kill -TERM "$started"
    wait "$started" || true
    [[ $(grep -c '^cmn: asked to stop' run.err) -eq 1 ]]
}

@test "Ctrl-C in a real terminal reaches the ranks once" {
    command -v script >/dev/null || skip 'script (bsdutils) is not installed'
    job
    # shellcheck disable=SC2046,SC2086  # process ids
    end_now "$started" $(pgrep -P "$started") $ranks
    rm -f rank-* cmn-run.log
    command=$(printf '%q ' "$CMN_RUN" -n 2 -mpi "${mpi[*]}" -- ./rank -cmn -cmn_checkpoint 5)
    # script ends its command where what it reads ends.
    (
        wait_for 'both ranks' test -s rank-0.pid -a -s rank-1.pid
        printf '\003'
        wait_for 'the end' test -e ended
    ) | timeout $((500 * SLOW)) script -qec "trap : INT; $command; touch ended" screen.txt >/dev/null 3>&- || true
    cat screen.txt
    for rank in 0 1; do
        [[ $(xargs <"rank-$rank") == 'USR1 saved' ]]
    done
}

@test "cmn-run killed by SIGKILL: mpiexec and ranks end, too" {
    job
    below=$(pgrep -P "$started")
    kill -KILL "$started"
    for pid in $below $ranks; do
        wait_for "the end of process $pid" gone "$pid"
    done
}

@test "ranks that do not end are ended by the second signal, and processes that outlive mpiexec by cmn-run" {
    job
    kill -STOP "${ranks#* }"
    kill -TERM "$started"
    wait_for 'the first request' grep -qs 'asked to save' cmn-run.log
    sleep 1.5 # those within a second are one
    kill -TERM "$started"
    status=0
    wait "$started" || status=$?
    cat cmn-run.log
    [[ $status -eq 143 ]]
    # shellcheck disable=SC2086
    all_gone $ranks
    grep -Eq 'stop .*end them now' cmn-run.log
}

# folders_differ FOLDER PATTERN: a training is killed after its first checkpoint. Its next attempt finds that folder for its own, as where
# each host has one, and ends with that line.
folders_differ() {
    rm -rf out mlp.log* run.out run.err
    mkdir out
    if [[ $2 == 'has begun'* ]]; then every=1000000; else every=5; fi
    cat >node <<END
#!/bin/bash
if [[ \$OMPI_CMN_ATTEMPT == 2 && \$OMPI_COMM_WORLD_RANK == 0 ]]; then
    mv out first
    cp -r $1 out
fi
exec "$DARKNET" "\$@"
END
    chmod +x node
    mpi=("${mpiexec[@]:1}")
    "$CMN_RUN" -n 2 -mpi "${mpi[*]}" -- ./node classifier train small.data mlp.cfg -cmn -cmn_validate 0 -cmn_checkpoint "$every" "${@:3}" \
        >run.out 2>run.err 3>&- &
    started=$!
    if [[ $every == 5 ]]; then
        wait_for 'a checkpoint' grep -q 'first checkpoint on the disk' run.err
    else
        wait_for 'a step' grep -q avg run.out
    fi
    pkill -KILL -P "$(pgrep -P "$started")" darknet
    status=0
    wait "$started" || status=$?
    cat run.err
    [[ $status -eq 1 ]]
    grep -Eq "^cmn\[rank 0@.*\] this training $2: all hosts must have one backup folder in common" run.err
    (($(grep -c 'start   ' cmn-run.log) == 2))
    rm -rf first cmn-run.log
}

@test "an attempt that finds another backup folder neither begins anew nor takes another training's checkpoint" {
    small_data 240 20
    mlp_cfg batch=24 max_batches=20 >mlp.cfg
    darknet_on 2 classifier train small.data mlp.cfg -cmn -cmn_validate 0 -cmn_checkpoint 20 >train.log 2>&1
    mv out other
    mkdir none
    mlp_cfg batch=24 max_batches=2000000 >mlp.cfg
    folders_differ none 'has reached iteration [0-9]+ on .*, and out on .* has no checkpoint of it'
    folders_differ other 'has begun on .*, and out on .* has a checkpoint of iteration 20 of another one'
}
