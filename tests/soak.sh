#!/usr/bin/env bash
# soak.sh [FAULT[:RUNS]...]: faults in real trainings under cmn-run, which must end with the bits of a training that nothing happened to: weights with
# `seen`, and every row of the log. Nothing may be left: no process, no shared memory, no temporary file.
#
#   kill       SIGKILL of a random rank at a random moment        launcher   SIGKILL of mpiexec
#   writing    SIGKILL of rank 0 while it writes a checkpoint      stop       SIGSTOP of a random rank
#   truncated  SIGKILL; then the newest checkpoint loses its end   flipped    SIGKILL; then a bit of it is another one
#   full       the disk has no room for checkpoints, for a while   readonly   the backup folder becomes read-only, for a while
#   asked      SIGTERM to cmn-run, and the same command again
#
# Usage: make soak [RUNS=50]. Trainings of 2 and 3 ranks in turn. SOAK=folder keeps the undisturbed trainings for a later call; SEED=n
# repeats the random moments; STEPS=n is the length of a training. One line per fault at the end, and status 1 when any run was not as it must be.
set -euo pipefail
cd "$(dirname "$0")/.."

: "${BUILD:=$PWD/build/cpu}" "${DARKNET:=$BUILD/bin/darknet}" "${RUNS:=50}" "${SEED:=$$}" "${STEPS:=200}"
if [[ -z ${MPIEXEC:-} ]]; then
    MPIEXEC='mpiexec --oversubscribe --bind-to none --mca mpi_yield_when_idle 1'
    [[ $(id -u) -ne 0 ]] || MPIEXEC+=' --allow-run-as-root'
fi
export BUILD DARKNET RUNS SEED STEPS MPIEXEC OPENBLAS_NUM_THREADS=1

# Mounts, and what lies in /dev/shm, are this script's own where that can be had.
if [[ -z ${SOAK_ALONE:-} && $(id -u) -eq 0 ]] && unshare --mount true 2>/dev/null; then
    SOAK_ALONE=1 exec unshare --mount --propagation private "$0" "$@"
fi
if [[ -n ${SOAK_ALONE:-} ]]; then
    mount -t tmpfs -o mode=1777 none /dev/shm
fi

(($#)) || set -- "kill:$RUNS" writing:5 launcher:3 stop:5 truncated:5 flipped:5 full:3 readonly:3 asked:3
RANDOM=$((SEED % 32768))
LIMIT=600    # seconds for a run that takes some 6, where nothing else runs
PATIENCE=120 # seconds for what comes within one
TIMEOUT=3    # cmn_timeout where a rank is stopped
repo=$PWD
work=${SOAK:-$(mktemp -d "${TMPDIR:-/tmp}/cmn-soak.XXXXXX")}
mkdir -p "$work/tmp"
work=$(cd "$work" && pwd)
export TMPDIR=$work/tmp
cd "$work"
started=

finish() {
    [[ -z $started ]] || kill -KILL "$started" 2>/dev/null || true
    if [[ -n ${SOAK_ALONE:-} ]]; then
        while umount "$work/run/out" 2>/dev/null; do :; done
    fi
    [[ -n ${SOAK:-} || -n ${keep:-} ]] || rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

# ---- the training ----

prepare() {
    [[ -f $repo/data/mnist/train.list ]] || { echo 'soak: data/mnist is missing: make mnist' >&2; exit 1; }
    ln -sfn "$repo/data/mnist" mnist
    # Of the second list all steps are one epoch: Darknet itself saves nothing meanwhile.
    sed -n '1,3000 s|^data/||p' "$repo/data/mnist/train.list" >short.list
    sed -n '1,30000 s|^data/||p' "$repo/data/mnist/train.list" >long.list
    sed -n '1,100 s|^data/||p' "$repo/data/mnist/valid.list" >valid.list
    printf 'digit-%d\n' 0 1 2 3 4 5 6 7 8 9 >labels.txt
    printf '%s\n' '[net]' batch=40 cmn_batch=per_rank subdivisions=1 height=28 width=28 channels=1 min_crop=28 max_crop=28 angle=7 threads=2 \
        momentum=0.9 decay=0.0005 learning_rate=0.02 policy=constant "max_batches=$STEPS" \
        '[convolutional]' batch_normalize=1 filters=8 size=5 stride=2 pad=1 activation=relu '[dropout]' probability=.3 \
        '[connected]' output=200 activation=relu '[connected]' output=10 activation=linear '[softmax]' >x.cfg
}

# data FOLDER LIST: FOLDER/x.data, with FOLDER/out for what is saved.
data() {
    mkdir -p "$1/out"
    printf '%s\n' classes=10 "train=$2.list" valid=valid.list labels=labels.txt names=labels.txt "backup=$1/out" top=2 >"$1/x.data"
}

# training FOLDER: sets the array command.
training() {
    command=("$DARKNET" classifier train "$1/x.data" x.cfg -cmn -cmn_seed 7 -cmn_validate 3 -cmn_report_every 10 -cmn_json
        "$1/x.json" -cmn_checkpoint 10)
}

# reference RANKS LIST: sets undisturbed to the folder of that training, and took to its milliseconds.
reference() {
    local begin
    undisturbed=undisturbed-$1-$2
    if [[ ! -s $undisturbed/took ]]; then
        data "$undisturbed" "$2"
        training "$undisturbed"
        begin=$(now)
        # shellcheck disable=SC2086
        timeout --kill-after=5 $LIMIT $MPIEXEC -n "$1" "${command[@]}" >"$undisturbed/log" 2>&1 ||
            { cat "$undisturbed/log" >&2; echo 'soak: the undisturbed training failed' >&2; exit 1; }
        echo $(($(now) - begin)) >"$undisturbed/took"
    fi
    took=$(<"$undisturbed/took")
}

now() {
    echo $((${EPOCHREALTIME/[^0-9]/} / 1000))
}

# ---- a run, and what is done to it ----

start() {
    local options
    read -ra options <<<"${MPIEXEC#* }"
    # By this name in their environment all processes of the run are found.
    CMN_SOAK=$work timeout --foreground --kill-after=5 $LIMIT "$BUILD/bin/cmn-run" -n "$ranks" -journal run/journal \
        -mpi "${options[*]}" -- "${command[@]}" >run/out.log 2>run/err.log &
    started=$!
}

ours() {
    grep -lsz "^CMN_SOAK=$work\$" /proc/[0-9]*/environ 2>/dev/null | sed 's|/proc/||; s|/environ||' || true
}

# pid_of_rank N, of those that live
pid_of_rank() {
    local pid
    for pid in $(ours); do
        if grep -qsxz "OMPI_COMM_WORLD_RANK=$1" "/proc/$pid/environ" &&
            [[ $(readlink "/proc/$pid/exe") == "$(realpath "$DARKNET")" ]]; then
            echo "$pid"
        fi
    done
}

pid_of_mpiexec() {
    local pid
    for pid in $(ours); do
        # Open MPI 5's mpiexec becomes prterun.
        if grep -qsxzE 'mpiexec|prterun' "/proc/$pid/cmdline"; then
            echo "$pid"
        fi
    done
}

# until_true SECONDS COMMAND...
until_true() {
    local end=$(($(now) + $1 * 1000))
    shift
    while ! "$@"; do
        (($(now) < end)) && kill -0 "$started" 2>/dev/null || return 1
        sleep 0.1
    done
}

all_run() {
    local i
    for ((i = 0; i < ranks; i++)); do
        [[ -n $(pid_of_rank $i) ]] || return 1
    done
}

# wait_a_moment [AT_LEAST]: until some part of the time that the training takes is over; or until so many checkpoints are there, and
# some part of the first third of its steps is done: on a busy machine it takes another time each time.
wait_a_moment() {
    local ms
    until_true $PATIENCE all_run
    ms=$((RANDOM * took * 3 / 4 / 32768))
    if (($#)); then
        until_true $PATIENCE checkpoints_are "$1"
        until_true $PATIENCE has_come_to $((RANDOM * STEPS / 3 / 32768))
        ms=$((RANDOM * took * 10 / STEPS / 32768)) # there is a checkpoint every ten steps
    fi
    sleep "$((ms / 1000)).$(printf %03d $((ms % 1000)))"
}

# checkpoints: those that there are, the newest last.
checkpoints() {
    find run/out -maxdepth 1 -name 'x-*.checkpoint' -printf '%f\n' 2>/dev/null | sort -t - -k 2 -n
}

checkpoints_are() {
    (($(checkpoints | wc -l) >= $1))
}

# has_come_to ITERATION: with its newest checkpoint.
has_come_to() {
    local newest
    newest=$(checkpoints | tail -n 1)
    newest=${newest#x-}
    ((${newest%.checkpoint} >= $1))
}

said() {
    grep -Eq -- "$1" run/journal 2>/dev/null
}

# hit SIGNAL PID: notes when, and how many checkpoints there were. Fails when the process has ended by itself already.
hit() {
    had=$(checkpoints | wc -l)
    [[ -n $2 ]] && kill -s "$1" "$2" 2>/dev/null || return 1
    hit_at=$(now)
}

one_rank() {
    pid_of_rank $((RANDOM % ranks))
}

fault_kill() {
    wait_a_moment && hit KILL "$(one_rank)"
}

fault_launcher() {
    wait_a_moment && hit KILL "$(pid_of_mpiexec)"
}

fault_stop() {
    command+=(-cmn_timeout "$TIMEOUT")
    start
    wait_a_moment 1 && hit STOP "$(one_rank)"
}

# A file that is being written has no name, or one of its own where the file system asks for that.
is_writing() {
    compgen -G 'run/out/x-*.checkpoint.??????.part' >/dev/null ||
        [[ -n $(find "/proc/$1/fd" -lname "*/run/out/#* (deleted)" 2>/dev/null) ]]
}

fault_writing() {
    local pid end
    wait_a_moment 1
    pid=$(pid_of_rank 0)
    [[ -n $pid ]] || return 1
    end=$(($(now) + PATIENCE * 1000))
    until is_writing "$pid"; do
        (($(now) < end)) && kill -0 "$pid" 2>/dev/null || return 1
    done
    hit KILL "$pid"
}

# damage HOW: the newest checkpoint, between two tries.
damage() {
    local file
    wait_a_moment 2 && hit KILL "$(one_rank)" || return 1
    until_true $PATIENCE said ' failure '
    file=run/out/$(checkpoints | tail -n 1)
    "$1" "$file" "$(stat -c %s "$file")"
    expected+=("damaged|truncated|checksum")
}

cut_off() {
    truncate -s $((RANDOM * $2 / 32768)) "$1"
}

flip() {
    local at=$((RANDOM * $2 / 32768)) byte
    byte=$(od -A n -t u1 -j "$at" -N 1 "$1")
    printf '%b' "\\x$(printf '%x' $((byte ^ (1 << RANDOM % 8))))" | dd of="$1" bs=1 seek="$at" conv=notrunc status=none
}

fault_truncated() {
    damage cut_off
}

fault_flipped() {
    damage flip
}

fault_full() {
    wait_a_moment 1
    harmed=1
    dd if=/dev/zero of=run/out/filler bs=64k status=none 2>/dev/null || true
    hit_at=$(now)
    until_true $PATIENCE said 'checkpoint.*(No space|full)' || return 1
    told_at=$(now)
    rm run/out/filler
    goes_on_and_dies
}

fault_readonly() {
    wait_a_moment 1
    harmed=1
    mount --bind run/out run/out
    # Not while a checkpoint is being written.
    until_true $PATIENCE mount -o remount,bind,ro run/out 2>/dev/null || { umount run/out; return 1; }
    hit_at=$(now)
    until_true $PATIENCE said 'checkpoint.*[Rr]ead-only' || { umount run/out; return 1; }
    told_at=$(now)
    umount run/out
    goes_on_and_dies
}

# Once there is a newer checkpoint a rank dies.
goes_on_and_dies() {
    local before
    before=$(checkpoints | tail -n 1)
    until_true $PATIENCE is_newer "$before" || return 1
    had=$(checkpoints | wc -l)
    kill -KILL "$(one_rank)" 2>/dev/null
}

is_newer() {
    [[ $(checkpoints | tail -n 1) != "$1" ]]
}

fault_asked() {
    local status=0
    wait_a_moment 1
    [[ -n $(pid_of_rank 0) ]] || return 1
    kill -TERM "$(pgrep -P "$started")"
    hit_at=$(now)
    wait "$started" || status=$?
    [[ $status -eq 143 ]] || wrong "asked to stop it ended with status $status"
    told_at=$(now)
    restarts=$((restarts - 1))
    start
}

# ---- what must be so afterwards ----

wrong() {
    echo "soak: $fault on $ranks ranks: $1" >&2
    bad=$((bad + 1)) keep=1
}

# What a row says of the training, without what it says of the machine.
rows() {
    jq -cS 'map(with_entries(select(.key | test("^(epoch|iteration|lr|.*main/.*)$"))))[]' "$1"
}

left() {
    ours | xargs -r ps -o pid=,stat=,args= -p | grep -v ' Z' || true
    # The probe of a killed start stays until a start a minute later (cli/silent_errors).
    find run/out -name '.*' ! -name '.cmn-probe-*' -type f
    # Without mpiexec nobody takes away what is Open MPI's own.
    [[ $fault != launcher ]] || return 0
    [[ -z ${SOAK_ALONE:-} ]] || find /dev/shm -mindepth 1
    find "$TMPDIR" ! -type d
}

nothing_is_left() {
    [[ -z $(left) ]]
}

fault_time() {
    local stamp
    if [[ -z $told_at ]]; then
        stamp=$(sed -nE '/ fault |mpiexec itself/ { s/Z .*//p; q }' run/journal)
        told_at=$([[ -n $stamp ]] && date -d "${stamp}Z" +%s%3N 2>/dev/null) || { wrong 'no message'; return; }
    fi
    times+=($((told_at - hit_at)))
}

check() {
    local status=0 pattern resumed i
    wait "$started" || status=$?
    started=
    [[ $status -eq 0 ]] || { wrong "status $status"; tail -n 20 run/journal run/err.log >&2; return; }
    cmp "$undisturbed/out/x.weights" run/out/x.weights >&2 || wrong 'the weights differ'
    diff <(rows "$undisturbed/x.json") <(rows run/x.json) >&2 || wrong 'rows of the log differ'
    # The process had done its work when the signal came.
    if [[ $(grep -c ' start ' run/journal) -eq 1 ]] && ! grep -Eq ' fault |mpiexec itself' run/journal; then
        late=$((late + 1))
        return
    fi
    resumed=$(grep -c ' resume ' run/journal || true)
    restarts=$((restarts + $(grep -c ' start ' run/journal) - 1))
    resumes=$((resumes + resumed))
    ((!had || resumed)) || wrong "$had checkpoints were there, and none was used"
    for pattern in "${expected[@]}"; do
        grep -Eq "(warning|resume) .*($pattern)" run/journal || wrong "the journal does not say: $pattern"
    done
    (($(checkpoints | wc -l) <= 2)) || wrong 'more than two checkpoints stayed'
    for ((i = 0; i < 600; i++)); do ! nothing_is_left || break; sleep 0.1; done
    nothing_is_left || { wrong 'something is left:'; left >&2; }
    fault_time
}

# one FAULT RANKS: a run. When the training ended before its moment had come, there is another.
one() {
    local list=short attempt
    fault=$1 ranks=$2
    [[ $1 != full && $1 != readonly ]] || list=long
    reference "$ranks" $list
    for ((attempt = 0; attempt < 10; attempt++)); do
        rm -rf run "${TMPDIR:?}"/*
        [[ -z ${SOAK_ALONE:-} ]] || find /dev/shm -mindepth 1 -delete
        data run $list
        training run
        expected=() told_at='' had=0 harmed=0
        if [[ $1 == full ]]; then
            mount -t tmpfs -o size=24m none run/out
        fi
        [[ $1 == stop ]] || start
        if "fault_$1"; then
            check
            [[ $1 != full ]] || umount run/out
            return
        fi
        late=$((late + 1))
        # Where the disk was no longer to be written, and the last weights came before a checkpoint, it could not end well.
        wait "$started" || ((harmed)) || wrong "status $? of a run that nothing happened to"
        [[ $1 != full ]] || umount run/out
    done
    wrong 'its moment never came'
}

summary() {
    local sorted
    mapfile -t sorted < <(printf '%s\n' "${times[@]}" | sort -n)
    printf '%-9s %3d runs: %d as undisturbed, bit by bit; %d restarts, %d of them from a checkpoint; fault to message %s s (min, median, max)\n' "$1" "$2" \
        $(($2 - bad)) $restarts $resumes "$(awk -v a="${sorted[0]:-0}" -v b="${sorted[${#sorted[@]} / 2]:-0}" -v c="${sorted[-1]:-0}" \
            'BEGIN { printf "%.2f, %.2f, %.2f", a / 1000, b / 1000, c / 1000 }')"
    ((!late)) || echo "          ($late more runs had ended before the moment came)"
}

prepare
failures=0
for item in "$@"; do
    fault=${item%%:*} runs=1
    [[ $item != *:* ]] || runs=${item#*:}
    declare -F "fault_$fault" >/dev/null || { echo "soak: no fault has the name $fault" >&2; exit 1; }
    if [[ $fault == full || $fault == readonly ]] && [[ -z ${SOAK_ALONE:-} ]]; then
        echo "$fault: skipped: only root may mount"
        continue
    fi
    bad=0 late=0 restarts=0 resumes=0 times=()
    for ((r = 0; r < runs; r++)); do
        one "$fault" $((2 + r % 2))
    done
    summary "$fault" "$runs"
    failures=$((failures + bad))
done
[[ -z ${keep:-} ]] || echo "what the last run wrote is in $work/run"
((failures == 0))
