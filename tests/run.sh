#!/usr/bin/env bash
# Runs the tests and prints their TAP; the last line is "N passed, N failed, N skipped".
#
#   tests/run.sh [NAME...]    only the programs whose name contains one of these, e.g. ranks/mpi or cli/bad_input
#   FILTER=REGEX tests/run.sh cli/bad_input    of bats files only the @tests whose names match
#
# With TREE=alexeyab (`make test TREE=alexeyab`) they run over AlexeyAB's tree, those that can tell something there. Without it,
# the tests whose tag is alexeyab run over that tree, too: as alexeyab/cli/faults, for example. That tree is ALEXEYAB_TREE, or the
# work tree of commit 59596d78 in the user's cache.
#
# TEST_JOBS of them run side by side (5 on 2 cores), since most wait more than they compute. Those whose ranks take the
# cores while they wait come first, by themselves, one more than there are cores for. Of those that compile there is one at a
# time, and of those that measure time, too. Each is printed when it has ended. A skip that tests/skips.txt does not allow is
# a failure. What fails while the machine stands still for two seconds or more, as a virtual one does when its host is busy, runs
# again, once, alone, at the end: its limits of time say nothing then. So does what measures time and ran beside others.
#
# `make test` sets the environment: DARKNET (the program), BUILD (folder of the variant), MPIEXEC (a command with
# arguments), SAN (sanitizers of this variant, or empty), CC, CMN_LIBS. Everything is written below
# $BUILD/tests/tmp, which stays when a test has failed.
set -euo pipefail
cd "$(dirname "$0")/.."

: "${TREE:=pjreddie}" "${ALEXEYAB_BUILD:=$(find build -maxdepth 1 -name 'cpu-alexeyab*-gemm' -printf "$PWD/%p" -quit 2>/dev/null || true)}"
if [[ $TREE == alexeyab ]]; then : "${BUILD:=$ALEXEYAB_BUILD}"; fi
: "${BUILD:=$PWD/build/cpu}" "${DARKNET:=$BUILD/bin/darknet}" "${CC:=gcc}" "${SAN:=}" "${NP:=2}"
cores=$(nproc)
: "${TEST_JOBS:=$((cores < 4 ? 2 * cores + 1 : 9))}"
if [[ -z ${MPIEXEC:-} ]]; then
    MPIEXEC='mpiexec --oversubscribe --bind-to none --mca mpi_yield_when_idle 1'
    [[ $(id -u) -ne 0 ]] || MPIEXEC+=' --allow-run-as-root'
fi
read -ra mpiexec <<<"$MPIEXEC"
export TREE BUILD DARKNET CC SAN NP MPIEXEC
export CMOCKA_MESSAGE_OUTPUT=TAP LC_ALL=C
# Open MPI 4 makes this folder where it is missing, and removes it when it is empty: of two jobs that begin at once there one
# may fail. What lies in it keeps it.
sessions=${TMPDIR:-/tmp}/ompi.$(uname -n).$(id -u)
(umask 077 && mkdir -p "$sessions/tests-$$")
# What Open MPI takes here anyway. Its other ways look for adapters first, 0.2 s in each process (libpsm2).
export OMPI_MCA_pml=${OMPI_MCA_pml:-ob1}
# The tests call make themselves, and count on the defaults of what they run.
unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES DARKNET_TREE MNIST_DIR CDPATH
# As tests/tree.mk has it.
cached=${XDG_CACHE_HOME:-$HOME/.cache}/darknet-cmn/alexeyab-59596d78
[[ -n ${ALEXEYAB_TREE:-} || ! -d $cached/src ]] || ALEXEYAB_TREE=$cached
export ALEXEYAB_TREE=${ALEXEYAB_TREE:-}

mkdir -p "$BUILD/tests/tmp"
tmp=$(mktemp -d "$BUILD/tests/tmp/run-XXXXXX")
export CMN_TEST_TMP=$tmp
passed=0 failed=0 skipped=0
failures=() skips=()

# A hang is found by these; they are no statement about speed.
slow=1
[[ -z $SAN ]] || slow=5
export BATS_TEST_TIMEOUT=$((600 * slow))

tool=$tmp/compare_weights
"$CC" -std=c11 -O2 -Wall -Wextra -o "$tool" tests/tools/compare_weights.c -lm
export COMPARE_WEIGHTS=$tool

# note NAME LINE: a failure, for now and for the summary.
note() {
    failed=$((failed + 1))
    failures+=("$1: $2")
}

# When the machine stood still: lines "SECOND SECONDS".
stalls=$tmp/stalls
: >"$stalls"
note_stalls() {
    local before=${EPOCHREALTIME/./} now
    while sleep 0.5 && kill -0 $$ 2>/dev/null; do
        now=${EPOCHREALTIME/./}
        ((now - before < 2500000)) || echo "$SECONDS $(((now - before) / 1000000))" >>"$stalls"
        before=$now
    done
}
note_stalls &
trap 'kill "$noting"' EXIT
noting=$!
declare -A again=() # why, by name

# had_no_time NAME STATUS BEGAN ENDED LANE: it failed, for the first time, and perhaps for want of time.
had_no_time() {
    local most
    [[ $2 -ne 0 && -z $SAN && -z ${again[$1]:-} ]] || return 1
    most=$(awk -v from="$3" -v to="$4" '$1 >= from && $1 - $2 <= to && $2 > most { most = $2 } END { print most + 0 }' "$stalls")
    if ((most)); then
        again[$1]="the machine stood still for $most s"
    else
        [[ $5 == timed && $programs -gt 1 ]] || return 1
        again[$1]='it measures time, and ran beside others'
    fi
}

# run_again NAME FOLDER: at the end. What it has said so far is no result.
run_again() {
    local files=$tmp/${1//\//-}
    printf '# %s failed and runs again, alone, at the end: %s. So far:\n' "$1" "${again[$1]}"
    { cat "$2/tap"; tail -n 40 "$2/stderr"; } | sed 's/^/# /'
    [[ ! -d $files ]] || mv "$files" "$files-first"
    queue+=("$1")
}

# watched NAME: what the sanitizers find in the program that is started next goes into files of its own. A test may throw
# away what a job says, and some expect it to fail.
options=("${ASAN_OPTIONS:-}" "${UBSAN_OPTIONS:-}" "${TSAN_OPTIONS:-}")
watched() {
    local path=$tmp/found/${1//\//-}
    [[ -n $SAN ]] || return 0
    mkdir -p "$tmp/found"
    export ASAN_OPTIONS="${options[0]} log_path='$path'" UBSAN_OPTIONS="${options[1]} log_path='$path'" \
        TSAN_OPTIONS="${options[2]} log_path='$path'"
}

# found NAME: each different one is a failure.
found() {
    local report line
    local -A said=()
    for report in "$tmp/found/${1//\//-}".*; do
        [[ -s $report ]] || continue
        line=$(grep -m 1 -E 'SUMMARY|runtime error' "$report" || head -n 1 "$report")
        [[ -z ${said[$line]:-} ]] || continue
        said[$line]=1
        printf 'not ok - %s: the sanitizer has found something\n' "$1"
        sed 's/^/# /' "$report"
        note "$1" "$line"
    done
}

# holds WHERE TREE: whether this is such a place, in the words of tests/skips.txt.
holds() {
    case $1 in
        root) [[ $(id -u) -eq 0 ]] ;;
        user) [[ $(id -u) -ne 0 ]] ;;
        sanitizer) [[ -n $SAN ]] ;;
        no-gpu) ! compgen -G '/dev/nvidia[0-9]*' >/dev/null ;;
        no-cuda) [[ ! -x ${CUDA_HOME:-/usr/local/cuda}/bin/nvcc ]] && ! command -v nvcc >/dev/null ;;
        open-mpi-5) "${mpiexec[0]}" --version | grep -q 'Open MPI) 5' ;;
        no-namespaces) ! unshare --net --mount --pid --time --fork true 2>/dev/null ;;
        no-ptrace) ! strace -o /dev/null true 2>/dev/null ;;
        one-core) (($(nproc --all) == 1)) ;;
        large-memory) awk '/^MemAvailable:/ { exit $2 < 40 * 1024 * 1024 }' /proc/meminfo ;;
        no-bf16) ! grep -qE 'avx512_bf16|amx_bf16' /proc/cpuinfo ;;
        no-avx512) ! grep -q avx512vl /proc/cpuinfo ;;
        no-alexeyab) [[ -z ${ALEXEYAB_TREE:-} ]] ;;
        alexeyab) [[ $2 == alexeyab || $TREE == alexeyab ]] ;;
        no-opencv) ! pkg-config --exists opencv4 ;;
        by-hand) [[ -z ${CMN_LIBS:-} ]] ;;
        *) return 1 ;;
    esac
}

# may_skip NAME REASON: tests/skips.txt allows it here.
may_skip() {
    local where file reason of=pjreddie name=$1
    if [[ $name == alexeyab/* ]]; then of=alexeyab name=${name#*/}; fi
    while read -r where file reason; do
        # shellcheck disable=SC2053  # patterns
        [[ -n $where && $where != \#* && $name == $file && $2 == $reason ]] && holds "$where" "$of" && return 0
    done <tests/skips.txt
    return 1
}

# skip NAME LINE: a test that was skipped counts as failed unless that is allowed.
skip() {
    local reason
    reason=$(sed -E 's/.*# [Ss][Kk][Ii][Pp] ?//; s/ in [0-9]+ms *$//' <<<"$2")
    if may_skip "$1" "${reason:--}"; then
        skipped=$((skipped + 1))
        skips+=("$1: $2")
    else
        note "$1" "$2 (not allowed by tests/skips.txt)"
    fi
}

# count NAME STATUS LIMIT FILE STDERR: adds up the TAP in FILE. A program that gave no plan, or less than its plan says, or
# ended badly without a failed test, counts as one more failure.
count() {
    local name=$1 status=$2 limit=$3 file=$4 line plan='' done_tests=0 bad=0 missing=''
    while IFS= read -r line; do
        case $line in
            1..*) plan=${line#1..} plan=${plan%% *} ;;
            'not ok '*)
                done_tests=$((done_tests + 1)) bad=1
                note "$name" "$line"
                ;;
            'ok '*'# '[Ss][Kk][Ii][Pp]*)
                done_tests=$((done_tests + 1))
                skip "$name" "$line"
                ;;
            'ok '*) done_tests=$((done_tests + 1)) passed=$((passed + 1)) ;;
        esac
    done <"$file"
    if ((status == 124 || status == 137)); then
        missing="no end within $limit s: hung in test $((done_tests + 1))"
    elif [[ -z $plan ]]; then
        missing="no plan, status $status"
    elif ((done_tests < plan)); then
        missing="ended with status $status after $done_tests tests"
    elif ((status != 0 && !bad)); then
        missing="status $status, though no test failed"
    fi
    if [[ -n $missing ]]; then
        missing="not ok - $name: $missing${plan:+ of $plan}"
        printf '%s\n' "$missing"
        note "$name" "$missing"
        bad=1
    fi
    if ((bad)); then
        tail -n 40 "$5" | sed 's/^/# /'
    fi
    found "$name"
}

wanted() {
    local name
    (($# > 1)) || return 0
    for name in "${@:2}"; do
        [[ $1 != *"$name"* ]] || return 0
    done
    return 1
}

# plan NAME: sets command, limit (seconds), lane, and taps, the file by way of which the tests of ranks print.
plan() {
    local ranks=${1##*-}
    limit=1800 lane=any taps=''
    case $1 in
        unit/*) limit=600 command=(env TMPDIR="$tmp" "$BUILD/tests/$1") ;;
        ranks/* | gpu/*-[1-9])
            limit=600 lane=ranks taps=$tmp/${1//\//-}.tap
            command=("${mpiexec[@]}" -n "$ranks" "$BUILD/tests/${1%-*}")
            ;;
        patches/check-patches)
            lane=compiles command=(darknet/check-patches.sh)
            # It needs what the Makefile knows about libraries.
            [[ -n ${CMN_LIBS:-} ]] || command=(echo '1..1'$'\n''ok 1 # SKIP it is run by make test and make check-patches')
            ;;
        alexeyab/*)
            command=(env TREE=alexeyab BUILD="$ALEXEYAB_BUILD" DARKNET="$ALEXEYAB_BUILD/bin/darknet" bats --tap --timing --print-output-on-failure --filter-tags alexeyab
                --tempdir "$tmp/${1//\//-}" "tests/${1#*/}.bats")
            ;;
        gpu/run) lane=alone command=(env -u DARKNET tests/gpu/run.sh) ;;
        *) command=(bats --tap --timing --print-output-on-failure ${FILTER:+--filter "$FILTER"} --tempdir "$tmp/${1//\//-}" "tests/$1.bats") ;;
    esac
    case ${1#alexeyab/} in
        cli/make | cli/gpu | cli/mpich) lane=compiles ;;
        cli/docs) limit=3600 ;;
        cli/watchdog | hosts/watchdog | cli/dying_exchange | cli/faults) lane=timed ;;
    esac
    [[ -z ${again[$1]:-} ]] || lane=alone
}

# Of what runs: name, when it began, the folder of its output below $tmp (which may have blanks) and its lane, by process id.
declare -A running=()

# has_room LANE NAME
has_room() {
    local most=$TEST_JOBS other here=0 ranks=0
    for other in "${running[@]}"; do
        [[ $other != *" $1" ]] || here=$((here + 1))
        [[ $other != *' ranks' ]] || ranks=$((ranks + 1))
    done
    case $1 in
        ranks) most=$((1 + cores / ${2##*-})) ranks=$((${#running[@]} - here)) ;;
        compiles | timed) most=1 ;;
        alone) most=1 ranks=${#running[@]} ;;
    esac
    ((here < most && ranks == 0))
}

# begin NAME: what was planned runs in the background, and in a process group of its own, where Ctrl-C is not ignored.
begin() {
    local name=$1 limit=$((limit * slow)) folder
    folder=$(mktemp -d "$tmp/side-XXXXXX")
    echo "$limit" >"$folder/limit"
    [[ -z $taps ]] || : >"$taps"
    watched "$name"
    set -m
    {
        status=0
        [[ -z $taps ]] || export RANKS_TAP=$taps
        timeout --foreground --kill-after=10 "$limit" "${command[@]}" </dev/null >"$folder/tap" 2>"$folder/stderr" || status=$?
        [[ -z $taps ]] || cat "$taps" >>"$folder/tap"
        times >"$folder/times"
        echo "$status $SECONDS" >"$folder/status"
    } &
    set +m
    running[$!]="$name $SECONDS ${folder##*/} $lane"
}

# cpu_seconds FILE: what the children of the shell used whose `times` it has.
cpu_seconds() {
    tail -n 1 "$1" | tr 'ms' '  ' | awk '{ printf "%.0f", 60 * $1 + $2 + 60 * $3 + $4 }'
}

# reap: waits for one of them, then prints and counts all that have ended.
reap() {
    local pid name began folder lane status ended
    wait -n "${!running[@]}" || true
    for pid in "${!running[@]}"; do
        read -r name began folder lane <<<"${running[$pid]}"
        folder=$tmp/$folder
        [[ -s $folder/status ]] || { ! kill -0 "$pid" 2>/dev/null || continue; echo "137 $SECONDS" >"$folder/status"; }
        read -r status ended <"$folder/status"
        unset "running[$pid]"
        if had_no_time "$name" "$status" "$began" "$ended" "$lane"; then
            run_again "$name" "$folder"
            continue
        fi
        printf '# %s\n' "$name"
        cat "$folder/tap"
        count "$name" "$status" "$(<"$folder/limit")" "$folder/tap" "$folder/stderr"
        ((ended - began < 5)) || printf '# %s took %d s, %s s of them on a core\n' "$name" $((ended - began)) "$(cpu_seconds "$folder/times")"
    done
}

interrupted() {
    local pid
    for pid in "${!running[@]}"; do
        kill -INT -- "-$pid" 2>/dev/null || true
    done
    exit 130
}
trap interrupted INT TERM

# What TREE=alexeyab runs, beside the programs of unit/ and ranks/ that tests.mk makes for it. The other files are about pjreddie's source, its input and its
# commands (cli/silent_errors: regressor); cli/alexeyab_features and hosts/alexeyab, of that tree alone, run in each `make test`.
of_both=(cli/alexeyab cli/batch_norm cli/batch_semantics cli/checkpoint cli/checkpoint_file cli/compressors cli/dying_exchange cli/epochs
    cli/exact cli/faults cli/logs_kept cli/numbers cli/onednn cli/output cli/report cli/restart_jobs cli/timeline cli/watchdog
    hosts/compressors hosts/faults hosts/link hosts/timeline hosts/training hosts/watchdog hosts/worlds)

# What is to run, in this order as far as there is room. Behind the ranks come those that take long, or they would run alone at
# the end.
of_this_tree() {
    local program=$BUILD/tests/$name
    [[ $TREE == pjreddie || " ${of_both[*]} " == *" $name "* ]] || [[ $name == @(unit|ranks)/* && -x ${program%-[1-5]} ]]
}
queue=()
add() {
    if wanted "$name" "$@" && of_this_tree; then
        queue+=("$name")
    fi
}

worlds=(1 2 3 4 5)
[[ -z $SAN ]] || worlds=(1 3)
for n in "${worlds[@]}"; do
    for source in tests/ranks/*/*.c tests/gpu/*/*.c; do
        [[ $source != tests/gpu/@(fake|real)/* ]] || continue
        name=${source#tests/} name=${name%.c}-$n
        # All keys crossed take minutes, and 5 ranks have every shape of nodes that 4 have, and uneven ones.
        [[ $name != ranks/hooks/combinations-4 ]] || continue
        add "$@"
    done
done
declare -A early=()
for name in patches/check-patches cli/bad_input cli/restart cli/gpu_stand_in cli/drivers cli/docs cli/watchdog hosts/slurm hosts/ssh \
    cli/make hosts/watchdog cli/faults cli/numbers cli/mnist; do
    early[$name]=1
    [[ $name == patches/* && -n $SAN ]] || add "$@"
done
for file in tests/cli/*.bats tests/hosts/*.bats tests/unit/*/*.c; do
    name=${file#tests/} name=${name%.*}
    [[ -n ${early[$name]:-} ]] || add "$@"
    if [[ $TREE == pjreddie && -z $SAN && -n $ALEXEYAB_BUILD ]] && grep -q '^# bats test_tags=alexeyab' "$file"; then
        name=alexeyab/$name
        add "$@"
    fi
done
# It has the GPU alone. It finds the newest GPU build by itself, and skips where there is none, or no GPU.
name=gpu/run
[[ -n $SAN ]] || add "$@"

programs=${#queue[@]}
while ((${#queue[@]} + ${#running[@]})); do
    for i in "${!queue[@]}"; do
        ((${#running[@]} < TEST_JOBS)) || break
        plan "${queue[i]}"
        if has_room "$lane" "${queue[i]}"; then
            begin "${queue[i]}"
            unset 'queue[i]'
        fi
    done
    reap
done

if ((${#skips[@]})); then
    printf '\nSkipped, as tests/skips.txt allows:\n'
    printf '  %s\n' "${skips[@]}"
fi
if ((${#again[@]})); then
    printf '\nRan twice:\n'
    for name in "${!again[@]}"; do
        printf '  %s: %s\n' "$name" "${again[$name]}"
    done
fi
if ((failed)); then
    printf '\nFailed:\n'
    printf '  %s\n' "${failures[@]}"
    printf 'What the tests wrote is in %s\n' "$tmp"
else
    rm -rf "$tmp"
    rmdir "$BUILD/tests/tmp" 2>/dev/null || true
fi
if ((passed + failed + skipped == 0)); then
    printf 'no test has such a name: %s\n' "$*" >&2
    failed=1
fi
rmdir "$sessions/tests-$$" "$sessions" 2>/dev/null || true
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
((failed == 0))
