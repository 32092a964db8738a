#!/usr/bin/env bats
# shellcheck disable=SC2030,SC2031,SC2154  # mpiexec: helpers.bash; tests are functions that shellcheck takes for subshells
# What would go wrong without a word: numbers that are none, ranks that are not alike, keys without effect, files that others
# can read or plant.

load helpers

setup() {
    enter_folder
    mkdir -p out
}

# grey VALUE FILE: a picture of 8 by 8 points of that grey.
grey() {
    { printf 'P5 8 8 255\n' && head -c 64 /dev/zero | tr '\0' "\\$(printf %o "$1")"; } >"$2"
}

# numbers N: N grey pictures, and for each of them two numbers to learn; 07 is made white, or gets a number that is too large.
numbers() {
    local i name
    mkdir -p pictures
    for ((i = 0; i < $1; i++)); do
        name=$(printf 'pictures/%02d' "$i")
        grey $((40 + 7 * i % 200)) "$name.png"
        printf '0.%d\n0.5\n' "$i" >"$name.txt"
    done
    printf '%s\n' pictures/*.png >numbers.list
    printf '%s\n' classes=2 train=numbers.list backup=out >numbers.data
}

# end_cfg KEY=VALUE... -- LAYER...
end_cfg() {
    local keys=()
    while [[ $1 != -- ]]; do
        keys+=("$1")
        shift
    done
    net_section batch=12 height=8 width=8 channels=1 max_batches=8 learning_rate=0.01 min_crop=8 max_crop=8 "${keys[@]}"
    printf '%s\n' "${@:2}" '[connected]' output=2 activation=linear '[cost]' type=sse
}

# overflow: layers that give back what they get, but Inf for white, 255.
overflow() {
    local scale
    for scale in 1e6 1e6 1e6 1e6 1e6 1e6 360 1e-6 1e-6 1e-6 1e-6 1e-6 1e-6 0.00277778; do
        printf '%s\n' '[upsample]' stride=1 scale=$scale
    done
}

regressor=(regressor train numbers.data net.cfg -cmn -cmn_seed 7 -cmn_batch global)

@test "a loss that is no number: rank, layer, iteration and images are named, and nothing is saved" {
    numbers 24
    echo '1e30 0.5' >pictures/07.txt
    end_cfg -- >net.cfg
    fails_clearly_on 2 '^cmn\[rank [01]@.*\] iteration [12]: loss of layer 1 \(cost\): inf, .*its 6 images are in out/net-[12]\.rank-[01]\.nonfinite\.txt: pictures/' \
        "${regressor[@]}"
    [[ $(stat -c %a out/*.nonfinite.txt) == 600 ]]
    [[ $(wc -l <out/net-*.nonfinite.txt) -eq 6 ]]
    grep -P '^pictures/07.png\tepoch 1, place \d+$' out/*.nonfinite.txt
    run -1 compgen -G 'out/*.weights'

    # Of two passes the one that brought it, with the batch loaded ahead of it.
    rm out/*
    end_cfg subdivisions=2 -- >net.cfg
    fails_clearly_on 1 'its 6 images' "${regressor[@]}"
    [[ $(wc -l <out/net-*.nonfinite.txt) -eq 6 ]]
    grep '^pictures/07.png' out/*.nonfinite.txt
    rm out/*
    darknet_on 1 "${regressor[@]}" -cmn_nonfinite ignore >train.log 2>&1
    [[ -s out/net.weights ]]
}

@test "skip: the steps are left out on all ranks, said and counted" {
    numbers 24
    echo '1e30 0.5' >pictures/07.txt
    end_cfg -- >net.cfg
    for n in 1 3; do
        rm -rf out
        darknet_on $n "${regressor[@]}" -cmn_nonfinite skip >train.log 2>train.err
        # Each epoch has two steps, and one of them has the picture.
        [[ $(grep -cE "^cmn: iteration [1-8] is left out \([1-4] so far\): rank [0-2]@$(hostname): loss of layer 1 \(cost\): inf" train.err) -eq 4 ]]
        [[ $(jq '.[-1].skipped_steps' out/net.json) -eq 4 ]]
        [[ $(grep -l '^pictures/07.png' out/*.nonfinite.txt | wc -l) -eq 4 ]]
        mv "out/net.weights" $n.weights
    done
    assert_close 1.weights 3.weights 1e-6
    grep -o '^cmn: iteration [0-9]*' train.err >left
    darknet_on 3 "${regressor[@]}" -cmn_nonfinite skip -cmn_double_buffering 1 -cmn_communicator flat >train.log 2>train.err
    [[ $(grep -o '^cmn: iteration [0-9]*' train.err) == "$(<left)" ]]
    fails_clearly_on 1 'cmn_nonfinite=skip does not go with cmn_local_steps=2' "${regressor[@]}" -cmn_nonfinite skip -cmn_local_steps 2

    # A network that is gone for good does not train for nothing until the end.
    numbers 24
    end_cfg learning_rate=1e30 max_batches=1000 -- >net.cfg
    rm -rf out
    run darknet_on 1 "${regressor[@]}" -cmn_nonfinite skip
    [[ $status -eq 1 && $output == *'100 steps in a row were left out'* && ! -e out/net.weights ]]
}

@test "skip: a white picture with which a layer overflows leaves no trace in the statistics of batch normalisation" {
    numbers 24
    grey 255 pictures/07.png
    # shellcheck disable=SC2046  # a word each
    end_cfg -- $(overflow) '[convolutional]' filters=3 size=3 stride=1 batch_normalize=1 activation=leaky >net.cfg
    run -1 darknet_on 1 "${regressor[@]}"
    [[ $output =~ first\ seen\ in\ the\ output\ of\ layer\ 6\ \(upsample\),\ of\ image\ [0-9]+\ of\ the\ micro-batch,\ pictures/07.png ]]
    darknet_on 2 "${regressor[@]}" -cmn_nonfinite skip >train.log 2>&1
    [[ $(grep -c ' is left out ' train.log) -eq 4 ]]
    [[ -s out/net.weights ]]
    # With sync_bn all ranks have it.
    darknet_on 2 "${regressor[@]}" -cmn_nonfinite skip -cmn_sync_bn 1 >train.log 2>&1
    [[ $(grep -c ' is left out ' train.log) -eq 4 ]]
}

@test "cmn_exact: a gradient that overflows while its loss does not is seen in each micro-batch; skip leaves the same steps out on any number of ranks" {
    numbers 24
    # Weights of 1e-16 and 1e15 make outputs near 1; on its way back an error of 1e18 becomes one of 1e39.
    echo '1e18 0.5' >pictures/07.txt
    end_cfg subdivisions=4 learning_rate=1e-36 -- '[connected]' output=4 activation=linear >net.cfg
    sed -i '/^\[cost\]/a scale=1000000' net.cfg
    perl -e 'print pack("l<3q<", 0, 2, 0, 0), pack("f<*", (0) x 4, map({ 1e-16 * ($_ % 7) / 7 } 1 .. 256), 0, 0, (1e15) x 8)' >start.weights
    local regressor=(regressor train numbers.data net.cfg start.weights -cmn -cmn_seed 7 -cmn_batch global)
    fails_clearly_on 2 "^cmn\[rank [01]@.*\] iteration [12]: (biases|weight)_updates of layer 0 \(connected\): -?inf.*its 3 images are in out/net-[12]\.rank-[01]\.nonfinite\.txt: pictures/" \
        "${regressor[@]}" -cmn_exact on
    for n in 1 5; do
        rm -rf out
        darknet_on $n "${regressor[@]}" -cmn_nonfinite skip -cmn_exact on -cmn_verify 1 >train.log 2>train.err
        [[ $(grep -cE "^cmn: iteration [1-8] is left out \([1-4] so far\): rank [0-3]@$(hostname): " train.err) -eq 4 ]]
        [[ $(grep -l '^pictures/07.png' out/*.nonfinite.txt | wc -l) -eq 4 ]]
        mv out/net.weights $n.weights
        cmp 1.weights $n.weights
    done
    numbers 24
    darknet_on 1 "${regressor[@]}" -cmn_exact on >train.log 2>&1
    # Behind the number of images that were seen: something was learned, and more from 8 steps than from 4.
    run -1 cmp -i 20 1.weights start.weights
    run -1 cmp -i 20 1.weights out/net.weights
}

@test "cmn_exact, skip: a white picture with which a layer overflows leaves no trace in the statistics of batch normalisation" {
    numbers 24
    grey 255 pictures/07.png
    # shellcheck disable=SC2046  # a word each
    end_cfg subdivisions=4 -- $(overflow) '[convolutional]' filters=3 size=3 stride=1 batch_normalize=1 activation=leaky >net.cfg
    for n in 1 3; do
        rm -rf out
        darknet_on $n "${regressor[@]}" -cmn_nonfinite skip -cmn_exact on >train.log 2>&1
        [[ $(grep -c ' is left out ' train.log) -eq 4 ]]
        mv out/net.weights $n.weights
    done
    cmp 1.weights 3.weights
}

@test "a training that diverges: what an update has left is named, and worthless weights are not saved" {
    numbers 24
    end_cfg learning_rate=1e37 -- >net.cfg
    fails_clearly_on 2 'iteration [23]: .*(after an earlier update that left|first seen in)' "${regressor[@]}"
    sed 's/^decay=.*/decay=1000/' net.cfg >decay.cfg
    fails_clearly_on 1 'after iteration 1: NaN or Inf in the weights: weights of layer 0 ' "${regressor[@]/net.cfg/decay.cfg}" -cmn_verify 1
    end_cfg learning_rate=1e38 max_batches=1 -- >net.cfg
    sed -i 's/^0.5$/1e15/' pictures/*.txt
    fails_clearly_on 1 'not saved, for they are worthless: (weights|biases) of layer 0 \(connected\): -?(inf|nan)' "${regressor[@]}"
    run -1 compgen -G 'out/*.weights'
    darknet_on 1 "${regressor[@]/net.cfg/decay.cfg}" -cmn_verify 1 -cmn_nonfinite ignore >train.log 2>&1
    [[ -s out/decay.weights ]]
}

# Before the forward pass of iteration 3 a bit of one rank's weights flips, as in bad memory: CBLAS gets them as the transposed matrix.
@test "cmn_verify in a training: a bit that flips in one rank's weights is found, and its rank and tensor named" {
    [[ -z $SAN ]] || skip 'the sanitizers must be loaded first'
    numbers 24
    end_cfg -- >net.cfg
    cat >flip.c <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b, int ldb,
                 float beta, float *c, int ldc)
{
    static void (*next)(int, int, int, int, int, int, float, const float *, int, const float *, int, float, float *, int);
    static int passes;
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");

    if (tb == 112 && rank && !strcmp(rank, getenv("FLIPS")) && ++passes == 3) {
        ((unsigned char *)b)[4 * 77 + 1] ^= 1;
    }
    if (!next) {
        *(void **)&next = dlsym(RTLD_NEXT, "cblas_sgemm");
    }
    next(order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
END
    gcc -Wall -O1 -fPIC -shared -o flip.so flip.c
    mpiexec+=(-x LD_LIBRARY_PATH="$PWD" -x "LD_PRELOAD=flip.so:${LD_PRELOAD:-}" -x FLIPS)
    export FLIPS
    for FLIPS in 0 2; do
        fails_clearly_on 3 "after iteration 4: the weights of rank $FLIPS@$(hostname) differ from those of rank [012]@$(hostname), first in weights of layer 0 \(connected\): " \
            "${regressor[@]}" -cmn_communicator flat -cmn_verify 2
    done
    # With shm the ranks of a node have one copy of the weights: nothing differs.
    FLIPS=1 darknet_on 2 "${regressor[@]}" -cmn_communicator shm -cmn_verify 2 >train.log 2>&1
}

# apart WHAT: rank 1 in a folder of its own, where WHAT is changed; both train with the arguments that follow. One line says
# `pattern`.
apart() {
    local pattern=$1 files=$2
    shift 2
    rm -rf other
    mkdir other
    # shellcheck disable=SC2086  # names
    cp -r $files other
    eval "$change"
    # Open MPI 5.0.7's mpiexec crashes where it is given two commands.
    # shellcheck disable=SC2016  # expanded by the inner shell
    fails_clearly "^cmn\[rank 1@.*\] $pattern" "${mpiexec[@]}" -n 2 sh -c '[ "$OMPI_COMM_WORLD_RANK" != 1 ] || cd other; exec "$@"' - \
        "$DARKNET" "$@" -cmn
}

@test "an error of all ranks is said once, however late one of them comes to it" {
    [[ -z $SAN ]] || skip 'the sanitizers must be loaded first'
    mlp_cfg batch=20 >mlp.cfg
    cat >calls.c <<'END'
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Ranks after 0 look late whether somebody else says it. */
int bind(int fd, const struct sockaddr *address, socklen_t length)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");

    if (address->sa_family == AF_UNIX && memmem(address, length, "-fatal-", 7) && rank) {
        usleep((useconds_t)(atoi(rank) * 100000));
    }
    return (int)syscall(SYS_bind, fd, address, length);
}
END
    mpicc -O1 -fPIC -shared -o calls.so calls.c
    fails_clearly '^cmn\[rank 0@[^]]+\] unknown communicator nonsense' "${mpiexec[@]}" -n 3 -x LD_LIBRARY_PATH="$PWD" \
        -x "LD_PRELOAD=calls.so:${LD_PRELOAD:-}" "$DARKNET" classifier train small.data mlp.cfg -cmn -cmn_communicator nonsense
}

@test "ranks with another program, CIFAR file or ensemble: one line at the start" {
    net_section batch=2 height=32 width=32 channels=3 max_batches=2 >net.cfg
    printf '%s\n' '[connected]' output=10 activation=linear '[softmax]' >>net.cfg
    head -c $((3 * 3073)) /dev/zero >c.bin
    echo c.bin >c.list
    printf '%s\n' train=c.list backup=out >c.data
    mkdir results
    printf '0,0,0,0,0,0,0,0,0,1\n%.0s' 1 2 3 >results/ensemble.csv

    change='printf x | dd of=other/c.bin bs=1 seek=777 conv=notrunc status=none'
    apart "the file c.bin differs from rank 0's: rank 0 has \"9219 bytes, hash [0-9a-f]{16}\", this rank has \"9219 bytes" \
        'c.bin c.list c.data net.cfg' cifar train net.cfg -data c.data
    change="sed -i 2s/1/2/ other/results/ensemble.csv"
    apart "the file results/ensemble.csv differs" 'c.bin c.list c.data net.cfg results' cifar distill net.cfg -data c.data

    # A text of the program that has nothing to do with trainings; debugging information does not count.
    sed 's/Enter Image Path/Enter imagE Path/' "$DARKNET" >changed
    run -1 cmp -s changed "$DARKNET"
    chmod +x changed
    train=(cifar train net.cfg -data c.data -cmn)
    rank_1_runs 'shift; set -- ./changed "$@"'
    fails_clearly "^cmn\[rank 1@.*\] the program differs from rank 0's: rank 0 has \"darknet-cmn [^ ]*, code [0-9a-f]{16}\"" \
        "${mpiexec[@]}" -n 2 "$otherwise" "$DARKNET" "${train[@]}"
    strip -o stripped "$DARKNET"
    rank_1_runs 'shift; set -- ./stripped "$@"'
    timeout "$HANG_LIMIT" "${mpiexec[@]}" -n 2 "$otherwise" "$DARKNET" "${train[@]}" >same.log 2>&1 ||
        { cat same.log; false; }
}

# With headers, notes and code in one segment, as linkers outside x86 lay them out.
@test "two builds with one segment for headers and code differ; a stripped copy does not" {
    [[ -n ${CMN_LIBS:-} ]] || skip 'it needs the libraries that make names'
    printf '%s\n' '#include <mpi.h>' '#include <stdio.h>' '#include "mpi/consistency.h"' \
        'int main(void) { struct cmn_topology t; MPI_Init(NULL, NULL); cmn_topology_open(&t); cmn_compare_program(&t); puts(WORD);' \
        'cmn_topology_close(&t); return MPI_Finalize(); }' >program.c
    for word in one two; do
        # shellcheck disable=SC2086  # libraries
        OMPI_CC=${CC##* } mpicc -std=gnu11 -I"$REPO/cmn" "-DWORD=\"$word\"" -Wl,-z,noseparate-code -Wl,--build-id ${SAN:+-fsanitize=$SAN} -o $word program.c "$BUILD/libcmn.a" $CMN_LIBS
    done
    readelf -lW one | grep -E 'LOAD +0x0+ .* R E '
    # One command for both: mpiexec of Open MPI 5.0.7 crashes where ranks of two commands abort.
    # shellcheck disable=SC2016  # for the ranks
    each=(bash -c 'exec ./${!OMPI_COMM_WORLD_RANK}')
    fails_clearly "the program differs from rank 0's: rank 0 has \"darknet-cmn [^ ]*, code [0-9a-f]{16}\"" "${mpiexec[@]}" -n 2 "${each[@]}" one two
    strip -o stripped one
    [[ $("${mpiexec[@]}" -n 2 "${each[@]}" one stripped 2>&1) == one$'\n'one ]]
}

@test "keys without effect: refused on the command line, said of the cfg" {
    numbers 24
    end_cfg max_batches=2 -- >net.cfg
    for keys in 'balance auto|cmn_exact=on' 'patience 2 -cmn_validate off|cmn_validate'; do
        # shellcheck disable=SC2086  # a key, its value and more
        fails_clearly_on 1 "cmn_${keys%% *} has no effect without ${keys#*|}: remove it" "${regressor[@]}" -cmn_${keys%|*}
    done
    fails_clearly_on 1 'cmn_patience: this training validates nothing, for it has no .valid. list' "${regressor[@]}" -cmn_patience 2
    end_cfg max_batches=2 cmn_patience=2 cmn_validate=off -- >idle.cfg
    darknet_on 1 regressor train numbers.data idle.cfg -cmn -cmn_communicator flat >train.log 2>train.err
    [[ $(grep -c '^cmn: cmn_patience in the cfg has no effect here: it needs cmn_validate$' train.err) -eq 1 ]]

    printf '%s\n' classes=2 valid=numbers.list labels=names.txt names=names.txt >valid.data
    printf '%s\n' pictures nothing >names.txt
    net_section batch=4 height=8 width=8 channels=1 cmn_epochs=2 cmn_patience=3 >class.cfg
    printf '%s\n' '[connected]' output=2 activation=linear '[softmax]' >>class.cfg
    fails_clearly_on 1 'cmn_epochs has no effect: classifier valid trains nothing' classifier valid valid.data class.cfg any.weights -cmn -cmn_epochs 3
    fails_clearly_on 1 'cmn_verify has no effect: classifier valid trains nothing' classifier valid valid.data class.cfg any.weights -cmn -cmn_verify 3
}

@test "what is written aside is its owner's and goes; no link of another user is followed" {
    numbers 24
    end_cfg max_batches=2 -- >net.cfg
    # Left by processes that are dead, by one that lives, of somebody's own, and just made.
    touch -d '2 minutes ago' out/{a.weights.aB3xYz.part,b.backup.000000.part,.cmn-probe-Ab12Cd,c.weights.zzzzzz.part,film.part,d.weights.long-x.part}
    touch -d '10 minutes' out/young.weights.aaaaaa.part # and young all the while
    exec 9<"out/c.weights.zzzzzz.part"
    flock -x 9
    darknet_on 1 "${regressor[@]}" >train.log 2>&1 9<&-
    exec 9<&-
    LC_ALL=C run -0 ls -A out
    echo "$output"
    [[ $(tr '\n' ' ' <<<"$output") == 'c.weights.zzzzzz.part d.weights.long-x.part film.part net.json net.weights net_1.weights young.weights.aaaaaa.part ' ]]
    (umask 027 && darknet_on 1 "${regressor[@]}" >train.log 2>&1)
    [[ $(stat -c %a "out/net.weights") == 640 ]]

    [[ $(id -u) -eq 0 ]] || skip 'only root can make links for another user'
    echo mine >precious
    for file in net.weights net.json; do
        rm -f "out/net.weights" out/net.json
        ln -s "$PWD/precious" "out/$file"
        chown -h nobody "out/$file"
        fails_clearly_on 1 "$file.*symbolic link .*another user" "${regressor[@]}"
        [[ $(<precious) == mine && -L out/$file ]]
        rm "out/$file"
    done
    # One's own are.
    touch elsewhere.weights
    ln -s ../elsewhere.weights "out/net.weights"
    darknet_on 1 "${regressor[@]}" >train.log 2>&1
    [[ -L out/net.weights && -s elsewhere.weights ]]
}

@test "killed while it saves: nothing is left but the lock of a process that is gone, as what is being written has no name" {
    command -v strace >/dev/null || skip 'strace is not installed'
    [[ -z $SAN ]] || skip 'the sanitizers open files of their own'
    numbers 24
    end_cfg max_batches=2 -- >net.cfg
    for call in fsync linkat:when=3; do # the links before are a probe and the lock
        status=0
        rm -f calls.*
        strace -ff -q -o calls -e trace=open,openat,${call%:*} -e inject=${call%:*}:signal=KILL${call#"${call%:*}"} "$DARKNET" "${regressor[@]}" >train.log 2>&1 || status=$?
        ! grep -q 'O_TMPFILE.* = -1 ' calls.* || skip 'the file system has no files without a name'
        [[ $status -eq 137 ]]
        ls -A out
        [[ $(ls -A out) == $'.net.checkpoint-lock\nnet.json' ]]
        gone "$(awk 'NR == 1 { print $2 }' out/.net.checkpoint-lock)"
    done
}

@test "every file, socket and shared memory that a training makes: its rights and its place" {
    command -v strace >/dev/null || skip 'strace is not installed'
    [[ -z $SAN ]] || skip 'the sanitizers open files of their own'
    numbers 24
    end_cfg max_batches=2 -- >net.cfg
    umask 022
    # A file for each thread: in one for all, a call that others interrupt is two lines, and its result is in the second.
    strace -ff --seccomp-bpf -q -o calls -e trace=open,openat,openat2,creat,mkdir,mkdirat,memfd_create,bind,linkat,rename,execve \
        "$DARKNET" "${regressor[@]}" -cmn_graph out/net.dot >train.log 2>&1
    cat calls.* >calls
    # Open MPI keeps a folder and memory of its own below /tmp and /dev/shm; its UCX looks for one below /run/user.
    grep -E 'O_CREAT|O_TMPFILE|creat\(|mkdir' calls | grep -vE '= -1 |/(tmp|shm)/(mpi-[^/]*/)?(ompi\.|vader|sm_segment|prterun\.|openmpi|open_mpi|pmix)|"/run/user/[0-9]+/ucx"' >made || true
    cat made
    # Aside, and the folder's lock: owner-only, and nobody's but ours (without a name, or O_EXCL); in place: the JSON log alone, and never
    # through a link.
    run -1 grep -vE '"(out/?|\.)", O_(RDWR|WRONLY)\|O_CLOEXEC\|O_TMPFILE, 0600|"out/(net|net_1)\.(weights|dot)\.[A-Za-z0-9]{6}\.part", O_RDWR\|O_CREAT\|O_EXCL(\|O_CLOEXEC)?, 0600|"out/\.cmn-probe-[A-Za-z0-9]{6}", O_RDWR\|O_CREAT\|O_EXCL(\|O_CLOEXEC)?, 0600|"\.net\.checkpoint-lock", O_RDWR\|O_CREAT\|O_EXCL\|O_NONBLOCK\|O_NOFOLLOW\|O_CLOEXEC, 0600|"out/net\.json", O_WRONLY\|O_CREAT\|O_NOFOLLOW\|O_CLOEXEC, 0666' made
    [[ $(grep -cE '\.part", |O_TMPFILE' made) -ge 3 ]]
    [[ $(grep -cE 'rename\("out/(net|net_1)\.(weights|dot)\.[A-Za-z0-9]{6}\.part", ' calls) -ge 3 ]]
    # Sockets of ours have no place in the file system.
    run -1 grep -E 'bind\(.*sun_path="/.*cmn' calls
    # Its own start is there, and no other one.
    run -0 grep -E 'execve\(' <(grep -v 'orted\|prte\|/sh"' calls)
    [[ ${#lines[@]} -eq 1 && $output == *"execve(\"$DARKNET\""* ]]
}
