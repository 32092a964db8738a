#!/usr/bin/env bats
# The same with MPICH, where it is installed beside Open MPI: a build of its own, the tests of tests/ranks, trainings.

load helpers

# What computes more than it calls MPI is left to Open MPI: it crosses keys and networks over the same communicators.
tests_of_ranks() {
    (cd "$REPO/tests" && printf '%s\n' ranks/*/*.c) | sed 's/\.c$//' |
        grep -vxE 'ranks/(hooks/combinations|communicators/exact|optimizers/(average|policies|restart)|compression/compressors)'
}

# can_run: or not, for the reason in `reason`.
can_run() {
    reason='the sanitizers are tried with Open MPI alone'
    [[ -z $SAN ]] || return 1
    reason='MPICH is not installed: mpicc.mpich, mpiexec.mpich'
    command -v mpicc.mpich >/dev/null && command -v mpiexec.mpich >/dev/null
}

setup_file() {
    can_run || return 0
    cd "$REPO" || return 1
    mapfile -t ranks < <(tests_of_ranks)
    make MPICC=mpicc.mpich build/cpu-mpich/bin/{darknet,cmn-run} "${ranks[@]/#/build/cpu-mpich/tests/}" >"$BATS_FILE_TMPDIR/build.log" 2>&1 ||
        { tail -n 20 "$BATS_FILE_TMPDIR/build.log" >&2; return 1; }
}

setup() {
    can_run || skip "$reason"
    cd "$BATS_TEST_TMPDIR" || return 1
}

# on_mpich N ARGUMENTS...: darknet on N ranks.
on_mpich() {
    timeout --kill-after=5 400 mpiexec.mpich -n "$1" "$REPO/build/cpu-mpich/bin/darknet" "${@:2}"
}

@test "it builds without a warning, in a folder of its own" {
    run -1 grep -iE 'warning|error:' "$BATS_FILE_TMPDIR/build.log"
    ldd "$REPO/build/cpu-mpich/bin/darknet" | grep libmpich
    run -1 grep -q libmpich <(ldd "$DARKNET")
    run -0 on_mpich 2 cmn check
    [[ $output == *'MPICH Version'* && $output == *'diagnosis: good: 2 ranks can train together'* ]]
}

# Two ranks: more than there are cores take long.
@test "tests of ranks" {
    local program status
    while read -r program; do
        status=0
        CMOCKA_MESSAGE_OUTPUT=TAP timeout --kill-after=5 400 mpiexec.mpich -n 2 "$REPO/build/cpu-mpich/tests/$program" </dev/null >tap 2>err || status=$?
        grep -q '^ok' tap || status=none
        ! grep -q '^not ok' tap || status=failed
        [[ $status == 0 ]] || { echo "$program: $status"; cat tap err; return 1; }
    done < <(tests_of_ranks)
}

@test "trainings on 1, 2, 3 and 5 ranks end with the bits of Open MPI, also with sums in a fixed order" {
    small_data 600 100
    mlp_cfg batch=60 subdivisions=4 max_batches=20 >mlp.cfg
    for n in 1 2 3 5 '3 -cmn_exact on -cmn_communicator flat'; do
        # shellcheck disable=SC2086  # ranks, keys and their values
        set -- $n
        n=$1
        shift
        train_on "$n" mlp.cfg -cmn_batch global "$@"
        mv out/mlp.weights expected
        on_mpich "$n" classifier train small.data mlp.cfg -cmn -cmn_seed 7 -cmn_validate 0 -cmn_batch global "$@" >log 2>&1 || { cat log; return 1; }
        cmp out/mlp.weights expected
    done
}

@test "a training that mpiexec is to end saves its weights" {
    small_data 600 100
    mlp_cfg batch=60 max_batches=1000000 >endless.cfg
    mpiexec.mpich -n 2 "$REPO/build/cpu-mpich/bin/darknet" classifier train small.data endless.cfg -cmn -cmn_seed 7 -cmn_validate 0 >log 2>&1 3>&- &
    pid=$!
    begun() { grep -q '^20,' log || gone "$pid"; }
    wait_for 'iteration 20' begun
    grep -q '^20,' log || { cat log; return 1; }
    rm -f out/endless.weights
    kill -TERM "$pid"
    wait "$pid" || true
    grep -q 'asked to stop' log
    [[ -s out/endless.weights ]]
}

@test "make finds the launcher that belongs to mpicc, and gives it no options of Open MPI" {
    cd "$REPO"
    run -0 env -u MPIEXEC make SETUP=: -n demo MPICC=mpicc.mpich
    grep -qE "MPIEXEC='mpiexec\.mpich *' NP='2' .*examples/mnist/demo.sh" <<<"$output"
    run -0 env -u MPIEXEC make SETUP=: -n demo
    grep -qE "MPIEXEC='mpiexec --oversubscribe .*' NP='2' .*examples/mnist/demo.sh" <<<"$output"
}
