#!/usr/bin/env bats
# A checkpoint as a file, from outside: what it holds, who can read it, two jobs in one folder; and weights that cannot be written.
# shellcheck disable=SC2154  # mpiexec: helpers.bash

load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return 1
    [[ -f $REPO/data/mnist/train.list ]] || return 0 # setup skips
    small_data 600 100
    mlp_cfg max_batches=30 >mlp.cfg
    timeout "$HANG_LIMIT" "${mpiexec[@]}" -n 2 "$DARKNET" classifier train small.data mlp.cfg -cmn -cmn_checkpoint 10 -cmn_verify 0
}

setup() {
    [[ -f $REPO/data/mnist/train.list ]] || skip 'data/mnist is missing: make mnist'
    enter_folder
    cp -a "$BATS_FILE_TMPDIR"/. .
}

@test "darknet cmn checkpoint shows what one holds, and what is wrong with it" {
    "$DARKNET" cmn checkpoint out/mlp-30.checkpoint >shown
    cat shown
    grep -qx 'file       out/mlp-30.checkpoint' shown
    grep -qx 'iteration  30' shown
    grep -qE '^written    20[0-9]{2}-[0-9]{2}-[0-9]{2} [0-9:]{8} UTC$' shown
    grep -qx "bytes      $(stat -c %s out/mlp-30.checkpoint), all checksums are right" shown
    grep -qE "^weights +- +$(stat -c %s "out/mlp$FINAL.weights")\$" shown
    grep -qE '^0\.weights +- +[0-9]+ of the weights$' shown
    grep -qE '^0\.weight_updates +- +[0-9]+$' shown
    grep -qE '^random\.own +2 +16$' shown
    grep -qx '  ranks = 2' shown
    for file in missing small.data out/mlp$FINAL.weights mlp.cfg/x; do
        run -1 "$DARKNET" cmn checkpoint "$file"
        [[ $output == "darknet cmn checkpoint: $file: "* && ${#lines[@]} -eq 1 ]]
    done
    run -1 "$DARKNET" cmn checkpoint
    head -c 100000 out/mlp-30.checkpoint >short
    run -1 "$DARKNET" cmn checkpoint short
    [[ $output == "darknet cmn checkpoint: short: truncated"* && ${#lines[@]} -eq 1 ]]
    printf x | dd of=out/mlp-30.checkpoint bs=1 seek=50000 conv=notrunc status=none
    run -1 "$DARKNET" cmn checkpoint out/mlp-30.checkpoint
    [[ $output == *': weights: wrong checksum' && ${#lines[@]} -eq 1 ]]
}

@test "a checkpoint is a weights file, its owner's alone, and nothing else is left in the folder" {
    size=$(stat -c %s "out/mlp$FINAL.weights")
    cmp -n "$size" "out/mlp$FINAL.weights" out/mlp-30.checkpoint
    # The momentum is as long as the weights, and these are stored once.
    bytes=$(stat -c %s out/mlp-30.checkpoint)
    ((bytes > size && bytes < 2 * size + 20000))
    for file in out/mlp-*.checkpoint; do
        [[ $(stat -c %a "$file") == 600 ]]
    done
    left=$(find out -mindepth 1 ! -name 'mlp*' -o -name '*lock*')
    echo "$left"
    [[ -z $left ]]
    "$DARKNET" classifier valid small.data mlp.cfg "out/mlp$FINAL.weights" >of-weights 2>said
    "$DARKNET" classifier valid small.data mlp.cfg out/mlp-30.checkpoint >of-checkpoint 2>said
    cmp of-weights of-checkpoint
    grep 'Loading weights from out/mlp-30.checkpoint...Done!' said
    pjreddies || return 0 # AlexeyAB's reads the beginning of any file
    # What is no checkpoint's is still told.
    cp "out/mlp$FINAL.weights" longer.weights
    head -c 200 /dev/zero >>longer.weights
    "$DARKNET" classifier valid small.data mlp.cfg longer.weights 2>&1 | grep 'more values than the network has'
}

@test "the reader in docs/reference/files.md reads one" {
    command -v python3 >/dev/null || skip 'python3 is not installed'
    # shellcheck disable=SC2016  # the backquotes of a document
    sed -n '/^```python /,/^```$/ { /^```/d; p }' "$REPO/docs/reference/files.md" >read.py
    cat >>read.py <<'END'
import sys
header, tensors = read('out/mlp-30.checkpoint')
assert header['iteration'] == 30 and header['training']['ranks'] == '2'
weights = open(sys.argv[1], 'rb').read()
for layer in '01':
    for name in 'weights', 'biases':
        assert weights.find(tensors[f'{layer}.{name}', None]) >= 20, name
        assert len(tensors[f'{layer}.{name}', None]) > 0
assert len(tensors['random.own', 0]) == 8 and ('random.own', 1) in tensors
END
    python3 read.py "out/mlp$FINAL.weights"
}

@test "the rows that a checkpoint knows of are on the disk before it gets its name" {
    command -v strace >/dev/null || skip 'strace is not installed'
    [[ -z $SAN ]] || skip 'strace and sanitizers do not go together'
    timeout "$HANG_LIMIT" strace -f --seccomp-bpf -y -qq -o trace -e trace=fdatasync,rename,renameat,renameat2 "$DARKNET" classifier train small.data mlp.cfg -cmn \
        -cmn_checkpoint 10 -cmn_report_every 10 -cmn_validate 0 -clear >train.log 2>&1 || { cat train.log; return 1; }
    grep -oE 'fdatasync\([0-9]+<[^>]*/mlp.json>|rename.*/?mlp-[0-9]+\.checkpoint"' <(grep -v superseded trace) |
        sed -E 's/.*(mlp.json|mlp-[0-9]+.checkpoint).*/\1/' >order
    cat order
    [[ $(tr '\n' ' ' <order) == 'mlp.json mlp-10.checkpoint mlp.json mlp-20.checkpoint mlp.json mlp-30.checkpoint ' ]]
}

@test "weights are on the disk before they take the place of older ones, and their folder then" {
    command -v strace >/dev/null || skip 'strace is not installed'
    [[ -z $SAN ]] || skip 'strace and sanitizers do not go together'
    timeout "$HANG_LIMIT" strace -f --seccomp-bpf -qq -o trace -e trace=fsync,rename "$DARKNET" classifier train small.data mlp.cfg -cmn \
        -clear >train.log 2>&1 || { cat train.log; return 1; }
    sed -nE 's/.* (fsync)\(.*/\1/p; s/.*rename\(.*"[^"]*\/(mlp[^"]*\.weights)"(\)| <unf).*/\1/p' trace >order
    cat order
    grep mlp_best.weights order
    [[ $(tr '\n' ' ' <order) =~ ^(fsync mlp[^ ]*.weights fsync )+$ ]]
}

@test "a second job of the same name in the same folder is refused, and the first one named" {
    echo 'process 4711 on elsewhere' >out/.mlp.checkpoint-lock
    run -1 timeout "$HANG_LIMIT" "${mpiexec[@]}" -n 2 "$DARKNET" classifier train small.data mlp.cfg -cmn -cmn_checkpoint 10 -clear
    [[ $output == *'out: process 4711 on elsewhere may train mlp there: wait until it has ended'*'(if it has ended, remove .mlp.checkpoint-lock)'* ]]
    [[ $(grep -c 'process 4711' <<<"$output") -eq 1 ]]
    [[ -f out/mlp-30.checkpoint ]]
    rm out/.mlp.checkpoint-lock
    darknet_on 1 classifier train small.data mlp.cfg -cmn -cmn_checkpoint 10 -clear
    [[ ! -e out/.mlp.checkpoint-lock ]]
}

@test "so is one without checkpoints, which would overwrite the weights; it leaves no lock" {
    local train=("$DARKNET" classifier train small.data mlp.cfg -cmn)
    timeout "$HANG_LIMIT" "${train[@]}"
    [[ ! -e out/.mlp.checkpoint-lock ]]
    rm out/*.weights
    : >out/.mlp.checkpoint-lock
    run -1 timeout "$HANG_LIMIT" "${train[@]}"
    [[ $output == *'out: another process may train mlp there: wait until it has ended, or give this training another backup folder'* ]]
    [[ ! -e out/mlp.weights ]]
    rm out/.mlp.checkpoint-lock
}

@test "weights that cannot be written end a training without checkpoints, or at its end, and no other" {
    small_data 120 20
    mlp_cfg batch=40 max_batches=7 >mlp.cfg
    pjreddies || sed -i s/max_batches=7/max_batches=107/ mlp.cfg
    train=(classifier train small.data mlp.cfg -cmn -cmn_seed 7 -cmn_validate 0)
    darknet_on 1 "${train[@]}" >train.log 2>&1
    mv "out/mlp$FINAL.weights" whole.weights
    rm -r out
    mkdir -p "out/mlp_$ON_THE_WAY.weights"
    fails_clearly_on 1 "Couldn't write weights to out/mlp_$ON_THE_WAY.weights \(Is a directory\)" "${train[@]}"
    darknet_on 1 "${train[@]}" -cmn_checkpoint 2 >train.log 2>&1
    grep "weights not written to out/mlp_$ON_THE_WAY.weights: Is a directory; training continues, and its checkpoints keep the weights" train.log
    cmp whole.weights "out/mlp$FINAL.weights"
    [[ -f out/mlp_2.weights ]] || ! pjreddies
    rm -r out
    mkdir -p "out/mlp$FINAL.weights"
    run -1 darknet_on 1 "${train[@]}" -cmn_checkpoint 2
    grep "^cmn\[rank 0@.*Couldn't write weights to out/mlp$FINAL.weights (Is a directory)" <<<"$output"
    # A long checkpoint, which is still being written when weights or their average fail, is completed.
    sed -i s/output=64/output=2000/ mlp.cfg
    for file in "mlp$FINAL" mlp_ema; do
        rm -r out
        mkdir -p "out/$file.weights"
        run -1 darknet_on 1 "${train[@]}" -cmn_checkpoint 1000 -cmn_ema .9
        [[ $output == *"out/$file.weights"*'Is a directory'* && -n $(find out -name 'mlp-*7.checkpoint') ]]
    done
    sed -i s/output=2000/output=64/ mlp.cfg
    [[ -z $SAN ]] || return 0
    cat >calls.c <<'END'
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int rename(const char *from, const char *to)
{
    if (strstr(to, ON_THE_WAY)) {
        errno = ENOSPC;
        return -1;
    }
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}
END
    mpicc -O1 -fPIC -shared -DON_THE_WAY="\"mlp_$ON_THE_WAY.weights\"" -o calls.so calls.c
    rm -r out
    LD_LIBRARY_PATH=$PWD LD_PRELOAD=calls.so darknet_on 1 "${train[@]}" -cmn_checkpoint 2 >train.log 2>&1
    grep "weights not written to out/mlp_$ON_THE_WAY.weights: No space left on device; training continues" train.log
    cmp whole.weights "out/mlp$FINAL.weights"
    [[ $(cd out && echo *.weights*) == "$(pjreddies && echo mlp.weights mlp_2.weights || echo mlp_final.weights)" ]]
}
