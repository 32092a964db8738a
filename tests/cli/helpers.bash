# shellcheck shell=bash disable=SC2154
# What the files of this folder share. A test runs in a folder of its own, with lists of real images in it.

bats_require_minimum_version 1.5.0

# bats sets -e alone: a program that crashes before a pipe, or inside of $( ), would go unseen. tests/assertions.sh finds
# other assertions that cannot fail.
set -o pipefail
shopt -s inherit_errexit

# shellcheck source=tests/environment.bash
. "$BATS_TEST_DIRNAME/../environment.bash"
# shellcheck source=tests/cli/tree.bash
. "$REPO/tests/cli/tree.bash"

# The Makefile gives ranks 3 s between SIGTERM and SIGKILL; Open MPI's own 1 s shortens every test of a failure.
unset OMPI_MCA_odls_base_sigkill_timeout

# Instrumented programs are slower. Limits below are for what hangs: a machine that does thirty things at once keeps them.
SLOW=1
[[ -z $SAN ]] || SLOW=4
HANG_LIMIT=$((250 * SLOW)) # seconds

# on_busy SECONDS: and one more for each process that waits for a core now: a time that a program itself keeps, as cmn_timeout.
on_busy() {
    local load
    read -r load _ </proc/loadavg
    echo $(($1 + ${load%.*} / $(nproc)))
}

# wait_for WHAT COMMAND...: until it is true, for 200 s at most, or PATIENCE.
wait_for() {
    local i what=$1
    shift
    for ((i = 0; i < ${PATIENCE:-200} * 10 * SLOW; i++)); do
        ! "$@" || return 0
        sleep 0.1
    done
    echo "waited in vain for: $what"
    return 1
}

# copy_sources FOLDER: the project's files as they lie there, and the archive of Darknet's source.
copy_sources() {
    mkdir -p "$1/build"
    (cd "$REPO" && { git ls-files -z -co --exclude-standard -- ':!data' ':!results' 2>/dev/null ||
        find . \( -path ./build -o -path ./bin -o -path ./data -o -path ./results \) -prune -o -type f -print0; } |
        while IFS= read -r -d '' file; do [[ ! -f $file ]] || printf '%s\0' "$file"; done |
        tar --null -T - -cf -) | tar -C "$1" -xf -
    [[ ! -d $REPO/build/upstream ]] || cp -r "$REPO/build/upstream" "$1/build/"
}

# small_data TRAIN VALID: small.data in the current folder, with lists of that many images of MNIST. Lines are
# relative paths, as in people's own lists. Skips the test when MNIST is not there.
small_data() {
    [[ -f $REPO/data/mnist/train.list ]] || skip 'data/mnist is missing: make mnist'
    ln -sfn "$REPO/data/mnist" mnist
    sed -n "1,$1 s|^data/||p" "$REPO/data/mnist/train.list" >train.list
    sed -n "1,$2 s|^data/||p" "$REPO/data/mnist/valid.list" >valid.list
    printf 'digit-%d\n' 0 1 2 3 4 5 6 7 8 9 >labels.txt
    printf '%s\n' 'classes=10' 'train=train.list' 'valid=valid.list' 'labels=labels.txt' 'names=labels.txt' \
        'backup=out' 'top=2' >small.data
    mkdir -p out
}

# net_section KEY=VALUE...: [net] for MNIST; later keys replace the defaults. Not all are Darknet's: with cmn_batch=per_rank
# a job has more images the more ranks it has, so that none runs short of them.
net_section() {
    local key pair
    local -A value=(
        [batch]=60 [subdivisions]=1 [height]=28 [width]=28 [channels]=$CHANNELS [min_crop]=28 [max_crop]=28 [angle]=0
        [hue]=0 [saturation]=1 [exposure]=1 [aspect]=1 [flip]=0 [threads]=1 [momentum]=0.9 [decay]=0.0005
        [learning_rate]=0.02 [policy]=constant [max_batches]=20 [cmn_batch]=per_rank
    )
    for pair in "$@"; do
        value[${pair%%=*}]=${pair#*=}
    done
    printf '[net]\n'
    for key in "${!value[@]}"; do
        printf '%s=%s\n' "$key" "${value[$key]}"
    done
}

ACTIVATION=relu

# mlp_cfg KEY=VALUE... >FILE
mlp_cfg() {
    net_section "$@"
    printf '%s\n' '[connected]' 'output=64' "activation=$ACTIVATION" '[connected]' 'output=10' 'activation=linear' '[softmax]'
}

# conv_cfg KEY=VALUE... >FILE
conv_cfg() {
    net_section "$@"
    printf '%s\n' '[convolutional]' 'filters=6' 'size=5' 'stride=1' 'pad=1' 'activation=relu' \
        '[maxpool]' 'size=2' 'stride=2' '[convolutional]' 'filters=8' 'size=3' 'stride=1' 'pad=1' 'activation=relu' \
        '[maxpool]' 'size=2' 'stride=2' '[connected]' 'output=10' 'activation=linear' '[softmax]'
}

# start_of N: sets the array start to what starts `darknet` on N ranks. One rank needs no mpiexec, whose start takes more than its own.
start_of() {
    start=("${mpiexec[@]}" -n "$1" "$DARKNET")
    [[ $1 -ne 1 ]] || start=(env OMPI_MCA_ess_singleton_isolated=1 "$DARKNET")
}

# darknet_on N ARGUMENTS...: `darknet` on N ranks, ended when it hangs.
darknet_on() {
    local start
    start_of "$1"
    timeout --kill-after=5 "$HANG_LIMIT" "${start[@]}" "${@:2}"
}

# train_on N CFG ARGUMENTS...: trains with seed 7 and without validation, unless the arguments say otherwise.
train_on() {
    local n=$1 cfg=$2
    shift 2
    darknet_on "$n" classifier train small.data "$cfg" -cmn -cmn_seed 7 -cmn_validate 0 "$@" >train.log 2>&1 ||
        { cat train.log; return 1; }
}

# trained NAME N CFG ARGUMENTS...: train_on, whose last weights become NAME.weights.
trained() {
    train_on "${@:2}"
    mv "out/$(basename "$3" .cfg)$FINAL.weights" "$1.weights"
}

# empty_out: the backup folder without what a training has left there.
empty_out() {
    rm -rf out
    mkdir out
}

# difference A B: relative L2 of two weights files; fails when their headers differ.
difference() {
    local text
    text=$("$COMPARE_WEIGHTS" "$1" "$2") || return 1
    if [[ $(sed -n 's/^seen \([0-9]*\) .*/\1/p' <<<"$text") != "$(sed -n 's/^seen [0-9]* //p' <<<"$text")" ]]; then
        printf '%s\n' "$text" >&2
        return 1
    fi
    sed -n 's/^relative-l2 //p' <<<"$text"
}

# assert_close A B LIMIT: the difference of two weights files is below LIMIT, and is a number.
assert_close() {
    local d
    d=$(difference "$1" "$2")
    echo "$1 and $2: relative L2 $d, limit $3"
    awk -v d="$d" -v limit="$3" 'BEGIN { exit !(d ~ /^[0-9]/ && d + 0 < limit + 0) }'
}

# assert_far A B LIMIT: it is a number, and not below LIMIT.
assert_far() {
    local d
    d=$(difference "$1" "$2")
    echo "$1 and $2: relative L2 $d, at least $3 wanted"
    awk -v d="$d" -v limit="$3" 'BEGIN { exit !(d ~ /^[0-9]/ && d + 0 >= limit + 0) }'
}

# gone PID: it has ended, with all of its threads: the first may be a zombie while others still hold files and memory. A zombie
# has ended; who takes its status is the affair of the machine's init.
gone() {
    ! grep -qs '^State:.[^ZX]' "/proc/$1"/task/*/status
}

# all_gone PID...: they have ended, or do so at once: Open MPI 5's mpiexec ends after the signal that kills its ranks, and not
# after their deaths, for which a busy machine needs a moment.
all_gone() {
    local pid
    for pid; do
        PATIENCE=60 wait_for "the end of process $pid" gone "$pid" || { ps -L -o pid,ppid,lwp,stat,wchan:25,etimes,args -p "$pid"; return 1; }
    done
}

# job_ended PID: waits until the job has ended; sets ended to its status.
job_ended() {
    wait_for 'the end of the job' gone "$1" || return 1
    ended=0
    # shellcheck disable=SC2034  # for the caller
    wait "$1" || ended=$?
}

# end_now PID...: kills them, those that have ended by themselves left out, and waits until they are gone: what they wrote stays as
# it is then, and a second attempt has the folder to itself.
end_now() {
    kill -KILL "$@" 2>/dev/null || true
    all_gone "$@"
}

# kill_job PID...: SIGKILL for these and for all processes below them, and waits until none of them is left.
kill_job() {
    local pids=("$@") i
    kill -STOP "$@" 2>/dev/null || true # they start no more
    for ((i = 0; i < ${#pids[@]}; i++)); do
        mapfile -t -O ${#pids[@]} pids < <(pgrep -P "${pids[i]}" || true)
    done
    end_now "${pids[@]}"
}

# sizes LOG: what a network was resized to, each time. Lines of the standard error may come in between.
sizes() {
    awk '/^Resizing(,|$)/ { sized = 1 } sized && /^ *[0-9]+( x [0-9]+.*)? *$/ { print; sized = 0 }' "$1"
}

# seen FILE: images seen, from a weights file's header.
seen() {
    od -A n -t u8 -j 12 -N 8 "$1" | tr -d ' '
}

# own_lines FILE: what the program said on the standard error, except the lines about layers, ranks and files that a good start
# prints as well. Boxes and lines of mpiexec and MPI (docs/use/troubleshooting.md) and OpenCV's warnings are left out.
own_lines() {
    tr -d '\000' <"$1" | awk '
        /^-----------*$/ { box = !box; next }
        box || /^\[[^]]*:[0-9]+\] / || /^\[warn\] Epoll / || /^\[ WARN:/ { next }
        { sub(/^Loading weights from .*\.\.\.(Done!( Loaded [0-9]+ layers from weights-file)?)? */, "") }
        { sub(/^ +[0-9]+ $/, "") }
        /^$/ || /^layer +filters/ || /^ +[0-9]+ (conv|deconv|connected|GRU|max|avg|softmax|dropout|cost|yolo|detection|Detection|iseg|logistic|RNN|LSTM)( |$)/ || /^\t+ *connected / { next }
        /^[0-9]+ classes$/ || /^rnn$/ || /^Learning Rate: / || /: Using default / { next }
        /^[0-9.]+$/ { next } # AlexeyAB: the rest of the line about OpenCV, which is written in pieces
        /^ *layer +filters/ || /^ OpenCV (version: |isn.t used)/ || /^Total BFLOPS / || /^avg_outputs = / || /^ Create [0-9]+ permanent/ { next } # AlexeyAB
        /^cmn: ([0-9]+ ranks? on|made the backup folder|no .valid. list|the ranks of a node cannot share decoded images|caches no images: )/ || /^Saving weights to / { next }
        { print }'
}

# fails_clearly PATTERN COMMAND...: COMMAND ends by itself, not with 0 and not by a crash, and the program
# says one line that matches PATTERN (extended regular expression).
fails_clearly() {
    local pattern=$1 status=0 lines
    shift
    timeout --kill-after=5 "$HANG_LIMIT" "$@" >fails.out 2>fails.err || status=$?
    echo "status $status of: $*"
    sed 's/^/  out: /' fails.out
    sed 's/^/  err: /' fails.err
    ((status != 0)) || { echo 'it ended with status 0'; return 1; }
    ((status != 124 && status != 137)) || { echo 'it did not end'; return 1; }
    ((status < 128)) || { echo "it crashed with status $status"; return 1; }
    if grep -Eq 'Segmentation|AddressSanitizer|ThreadSanitizer|runtime error:|signal 1?[0-9] \(' fails.err; then
        echo 'it crashed'
        return 1
    fi
    own_lines fails.err >fails.own
    lines=$(wc -l <fails.own)
    ((lines == 1)) || { echo "$lines lines, not one:"; cat fails.own; return 1; }
    grep -Eq -- "$pattern" fails.own || { echo "the line does not match: $pattern"; return 1; }
}

# fails_clearly_on N PATTERN ARGUMENTS...: the same for `darknet` on N ranks.
fails_clearly_on() {
    local start
    start_of "$1"
    fails_clearly "$2" "${start[@]}" "${@:3}"
}

# Prints the signal after which mpiexec leaves the ranks the time that they need to save: with Open MPI 4 it is SIGTERM, with
# odls_base_sigkill_timeout; Open MPI 5 kills them 0.25 s after that, but not after SIGUSR1.
patient_stop() {
    if mpiexec --version | grep 'Open MPI) 5' >/dev/null; then echo USR1; else echo TERM; fi
}

# rank_1_runs COMMANDS: sets otherwise, a program to be put before darknet and its words: rank 1 carries out these commands
# of a shell with them before it starts. Open MPI 5's mpiexec crashes when it is given two programs with a colon.
rank_1_runs() {
    otherwise=$PWD/otherwise.sh
    printf '%s\n' '#!/bin/sh' "if [ \"\$OMPI_COMM_WORLD_RANK\" = 1 ]; then $1; fi" 'exec "$@"' >"$otherwise"
    chmod +x "$otherwise"
}

# slowed NAME=VALUE...: from here on DARKNET is a program that does the same with slow ranks, as tests/tools/slow.c says.
slowed() {
    : "${undelayed:=$DARKNET}"
    gcc -Wall -O1 -fPIC -shared -o slow.so "$REPO/tests/tools/slow.c"
    # A space would end the name in LD_PRELOAD, where a path without a slash is looked up in LD_LIBRARY_PATH, which may hold one.
    printf '%s\n' '#!/bin/sh' "LD_LIBRARY_PATH='$PWD' LD_PRELOAD='slow.so:${LD_PRELOAD:-}' $* exec '$undelayed' \"\$@\"" >slowed
    chmod +x slowed
    DARKNET=$PWD/slowed
}

# Everything that a test starts and writes is in its own folder.
enter_folder() {
    cd "$BATS_TEST_TMPDIR" || return 1
}

# Exchanges with any communicator, checks the sums, and dies where it is told: tests/hosts/exchange.c.
EXCHANGE=$BUILD/tests/hosts/exchange

# Names of all communicators that sum.
registered() {
    "$DARKNET" cmn list -tsv | awk -F '\t' '$1 == "communicators" && $2 != "dummy" { print $2 }'
}

# sort_communicators MPIEXEC...: sets usable to those that work under that mpiexec, and refused to those that say why
# they do not. Each is one or the other.
sort_communicators() {
    local name
    usable=() refused=()
    timeout "$HANG_LIMIT" "$@" "$EXCHANGE" 1 1 all >sorted 2>sorted.err || { cat sorted sorted.err; return 1; }
    while read -r name; do
        if grep -q "^$name refuses: ." sorted; then
            refused+=("$name")
        elif grep -q "^$name [0-9]" sorted; then
            usable+=("$name")
        else
            echo "$name neither exchanges nor refuses:"
            cat sorted
            return 1
        fi
    done < <(registered)
    echo "usable: ${usable[*]}; refused: ${refused[*]:-none}"
}
