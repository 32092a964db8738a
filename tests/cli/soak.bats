#!/usr/bin/env bats
# A short tests/soak.sh: each fault in a training under cmn-run ends with the bits of an undisturbed one, and leaves nothing.

load helpers

setup_file() {
    export SOAK=$BATS_FILE_TMPDIR/soak STEPS=120
    unset OMPI_MCA_odls_base_sigkill_timeout
}

setup() {
    [[ -f $REPO/data/mnist/train.list ]] || skip 'data/mnist is missing: make mnist'
}

# soak FAULT:RUNS
soak() {
    run timeout --kill-after=5 $((550 * SLOW)) "$REPO/tests/soak.sh" "$1"
    echo "$output"
    [[ $output != *"skipped: "* ]] || skip "${output#*skipped: }"
    [[ $status -eq 0 ]]
    [[ $output == *" ${1#*:} runs: ${1#*:} as undisturbed"* ]]
}

@test "SIGKILL of a random rank at a random moment, of 2 ranks and of 3" { soak kill:2; }

@test "SIGKILL of rank 0 while it writes a checkpoint" { soak writing:1; }

@test "SIGKILL of mpiexec" { soak launcher:1; }

@test "SIGSTOP of a random rank" { soak stop:1; }

@test "the newest checkpoint is truncated before the restart" { soak truncated:1; }

@test "a bit of the newest checkpoint is flipped before the restart" { soak flipped:1; }

@test "the disk is full for a while" { soak full:1; }

@test "the backup folder is read-only for a while" { soak readonly:1; }

@test "asked to stop, and started again" { soak asked:1; }
