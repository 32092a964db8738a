#!/usr/bin/env bash
# Runs the tests and prints their TAP; the last line is "N passed, N failed, N skipped".
#
#   tests/run.sh [NAME...]    only the programs whose name contains one of these, e.g. ranks/mpi or cli/bad_input
#   FILTER=REGEX tests/run.sh cli/bad_input    of bats files only the @tests whose names match
#
# With TREE=alexeyab (`make test TREE=alexeyab`) they run over AlexeyAB's tree, those that can tell something there. Without it,
# the tests whose tag is alexeyab run over that tree, too: as alexeyab/cli/faults, for example.
#
# TEST_JOBS of them run side by side (6 on 2 cores), since most wait more than they compute. Each is printed when it has ended. A
# skip that tests/skips.txt does not allow is a failure. What fails while the machine is stalled for two seconds or more, as a
# virtual one does when its host is busy, runs again, once, alone, at the end. So does what measures time and ran beside others.
#
# `make test` sets the environment, or tests/environment.bash. Everything is written below $BUILD/tests/tmp, which stays when a
# test has failed.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=tests/environment.bash
. tests/environment.bash
. tests/tap.bash

cores=$(nproc)
: "${TEST_JOBS:=$((cores < 4 ? 3 * cores : 9))}"
export CMOCKA_MESSAGE_OUTPUT=TAP LC_ALL=C
# The tests call make themselves, and count on the defaults of what they run.
unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES DARKNET_TREE MNIST_DIR CDPATH

mkdir -p "$BUILD/tests/tmp"
tmp=$(mktemp -d "$BUILD/tests/tmp/run-XXXXXX")
# A hang is found by these limits; they are no statement about speed.
slow=$((${#SAN} ? 5 : 1))
export CMN_TEST_TMP=$tmp COMPARE_WEIGHTS=$tmp/compare_weights
"$CC" -std=c11 -O2 -Wall -Wextra -o "$COMPARE_WEIGHTS" tests/tools/compare_weights.c -lm
# What jobs that were killed leave here would slow down each later mpiexec. Open MPI 4 makes its folder in it where it is missing,
# and removes it when it is empty: of two jobs that begin at once there one may fail. What lies in it keeps it. Ranks that start
# without mpiexec share three folders more in it (jf.0/1/0).
sessions=$(mktemp -d "${TMPDIR:-/tmp}/mpi-XXXXXX")
chmod 1777 "$sessions"
(umask 077 && mkdir -p "$sessions/ompi.$(uname -n).$(id -u)/jf.0/1/0/tests")
export OMPI_MCA_orte_tmpdir_base=$sessions PRTE_MCA_prte_tmpdir_base=$sessions
# Ranks that wait would take the cores from those that compute. LD_PRELOAD takes no path with blanks; a sanitizer wants to be the first in it.
"$CC" -std=c11 -O2 -Wall -Wextra -shared -fPIC -o "$sessions/yield.so" tests/tools/yield.c
chmod 755 "$sessions/yield.so"
[[ -n $SAN || $sessions == *[[:space:]:]* ]] || export LD_PRELOAD=$sessions/yield.so

# When the machine last stood still, in seconds of this run.
echo -1 >"$tmp/stalled"
while before=${EPOCHREALTIME/./} && sleep 0.5 && kill -0 $$ 2>/dev/null; do
    ((${EPOCHREALTIME/./} - before < 2500000)) || echo $SECONDS >"$tmp/stalled"
done &
# shellcheck disable=SC2064  # of this process
trap "kill $! 2>/dev/null || true; rm -rf '$sessions'" EXIT

queue=()
# By process: name, lane, limit, begin, and folder below $tmp, which may have blanks. By name: why it runs again. By lane: how many.
declare -A running=() again=() lanes=()

# plan NAME: sets command, limit (seconds), lane, and taps, the file by way of which the tests of ranks print.
plan() {
    local file=$tmp/${1//\//-}${again[$1]:+-again}
    limit=1800 lane=any taps=''
    command=(bats --tap --timing --print-output-on-failure ${FILTER:+--filter "$FILTER"} --tempdir "$file" "tests/${1#alexeyab/}.bats")
    case $1 in
        unit/*) limit=600 command=(env TMPDIR="$tmp" "$BUILD/tests/$1") ;;
        ranks/* | gpu/*-[1-9])
            limit=600 lane=ranks taps=$file.tap
            command=("${mpiexec[@]}" -n "${1##*-}" "$BUILD/tests/${1%-*}")
            ;;
        gpu/run) lane=alone command=(env -u DARKNET tests/gpu/run.sh) ;;
        # It needs what the Makefile knows about libraries.
        patches/*)
            command=(darknet/check-patches.sh)
            [[ -n ${CMN_LIBS:-} ]] || command=(echo '1..1'$'\n''ok 1 # SKIP it is run by make test and make check-patches')
            ;;&
        alexeyab/*)
            command=(env TREE=alexeyab BUILD="$ALEXEYAB_BUILD" DARKNET="$ALEXEYAB_BUILD/bin/darknet" "${command[@]}" --filter-tags alexeyab)
            ;;&
        cli/make | cli/gpu | cli/mpich | patches/*) lane=compiles ;;
        cli/docs) limit=3600 ;;
        *cli/watchdog | *hosts/watchdog | *cli/dying_exchange | *cli/faults | cli/timeline) lane=timed ;;
    esac
    [[ -z ${again[$1]:-} ]] || lane=alone
    limit=$((limit * slow))
}

# has_room NAME: ranks take the cores while they wait, and run by themselves, one more than there are cores for. Of what compiles
# there is one at a time, and of what measures time, too.
has_room() {
    local all=${#running[@]} here=${lanes[$lane]:-0} ranks=${lanes[ranks]:-0}
    case $lane in
        ranks) ((all == here && here <= cores / ${1##*-})) ;;
        alone) ((all == 0)) ;;
        any) ((ranks == 0)) ;;
        *) ((ranks + here == 0)) ;;
    esac
}

# begin NAME: what was planned runs in the background, and in a process group of its own, where Ctrl-C is not ignored. What sanitizers
# find goes into files of its own: a test may throw away what a job says, and some expect it to fail.
begin() {
    local folder
    folder=$(mktemp -d "$tmp/side-XXXXXX")
    [[ -z $taps ]] || : >"$taps"
    set -m
    {
        status=0
        for name in ASAN UBSAN TSAN; do export ${name}_OPTIONS+=" log_path='$folder/found'"; done
        [[ -z $taps ]] || export RANKS_TAP=$taps
        timeout --foreground --kill-after=10 "$limit" "${command[@]}" </dev/null >"$folder/tap" 2>"$folder/stderr" || status=$?
        [[ -z $taps ]] || cat "$taps" >>"$folder/tap"
        times >"$folder/times"
        exit "$status"
    } &
    set +m
    running[$!]="$1 $lane $limit $SECONDS ${folder##*/}"
    lanes[$lane]=$((${lanes[$lane]:-0} + 1))
}

# reap: waits for one of them, then prints and counts it, unless it has failed for the first time, and perhaps for want of time.
# A program that was killed has left no times.
reap() {
    local pid name lane limit began folder status=0 why=''
    wait -n -p pid "${!running[@]}" 2>/dev/null || status=$?
    # Bash forgets a shell that a signal has ended while another command ran. If it knows none of them, this is such a one.
    [[ -n ${pid:-} ]] || for pid in "${!running[@]}"; do status=137 && break; done
    read -r name lane limit began folder <<<"${running[$pid]}"
    unset "running[$pid]"
    lanes[$lane]=$((lanes[$lane] - 1))
    folder=$tmp/$folder
    [[ $lane != timed || $programs -eq 1 ]] || why='it measures time, and ran beside others'
    (($(<"$tmp/stalled") < began)) || why='the machine stood still'
    if [[ $status -ne 0 && -n $why && -z $SAN && -z ${again[$name]:-} ]]; then
        again[$name]=$why
        queue+=("$name")
        echo "# $name failed and runs again, alone, at the end: $why. So far:"
        cat "$folder/tap" <(tail -n 40 "$folder/stderr") | sed 's/^/# /'
        return
    fi
    echo "# $name"
    cat "$folder/tap"
    count "$name" "$status" "$limit" "$folder"
    ((SECONDS - began < 5)) || tail -n 1 "$folder/times" 2>/dev/null | tr 'ms' '  ' | awk -v name="$name" -v took=$((SECONDS - began)) \
        '{ printf "# %s took %d s, %.0f s of them on a core\n", name, took, 60 * $1 + $2 + 60 * $3 + $4 }' || true
}

trap 'for pid in "${!running[@]}"; do kill -INT -- "-$pid" || true; done 2>/dev/null; exit 130' INT TERM

# What TREE=alexeyab runs, beside the programs of unit/ and ranks/ that tests.mk makes for it. The other files are about pjreddie's
# source, its input and its commands (cli/silent_errors: regressor); cli/alexeyab_features and hosts/alexeyab, of that tree alone, run
# in each `make test`.
of_both='cli/alexeyab cli/batch_norm cli/batch_semantics cli/checkpoint cli/checkpoint_file cli/compressors cli/dying_exchange cli/epochs
    cli/exact cli/faults cli/logs_kept cli/numbers cli/onednn cli/output cli/report cli/restart_jobs cli/timeline cli/watchdog
    hosts/compressors hosts/faults hosts/link hosts/timeline hosts/training hosts/watchdog hosts/worlds'

# add NAME: it is to run, in this order as far as there is room, unless it is there already.
words=("${@:-}")
add() {
    local word program=$BUILD/tests/$1
    [[ " ${queue[*]:-} " != *" $1 "* ]] || return 0
    [[ $TREE == pjreddie || " ${of_both//[[:space:]]/ } " == *" $1 "* || ($1 == @(unit|ranks)/* && -x ${program%-[1-5]}) ]] || return 0
    for word in "${words[@]}"; do
        [[ $1 != *"$word"* ]] || { queue+=("$1"); return; }
    done
}

worlds=(1 2 3 4 5)
[[ -z $SAN ]] || worlds=(1 3)
for n in "${worlds[@]}"; do
    for source in tests/ranks/*/*.c tests/gpu/*/*.c; do
        name=${source#tests/} name=${name%.c}-$n
        # All keys crossed take minutes, and 5 ranks have every shape of nodes that 4 have, and uneven ones. Over the stand-in for GPUs
        # 4 ranks have uneven nodes, too.
        [[ $name == gpu/@(fake|real)/* || $name == gpu/*-5 || $name == ranks/hooks/combinations-4 ]] || add "$name"
    done
done
# Behind the ranks come those that take long, or they would run alone at the end.
[[ -n $SAN ]] || add patches/check-patches
for name in cli/bad_input cli/restart cli/gpu_stand_in cli/drivers cli/docs cli/watchdog hosts/slurm hosts/ssh cli/make hosts/watchdog \
    cli/faults cli/numbers cli/mnist; do
    add $name
done
for file in tests/cli/*.bats tests/hosts/*.bats tests/unit/*/*.c; do
    name=${file#tests/} name=${name%.*}
    add "$name"
    if [[ $TREE == pjreddie && -z $SAN && -n $ALEXEYAB_BUILD ]] && grep -q '^# bats test_tags=alexeyab' "$file"; then add "alexeyab/$name"; fi
done
# It has the GPU alone. It finds the newest GPU build by itself, and skips where there is none, or no GPU.
[[ -n $SAN ]] || add gpu/run

programs=${#queue[@]}
while ((${#queue[@]} + ${#running[@]})); do
    for i in "${!queue[@]}"; do
        ((${#running[@]} < TEST_JOBS)) || break
        plan "${queue[i]}"
        if has_room "${queue[i]}"; then
            begin "${queue[i]}"
            unset 'queue[i]'
        fi
    done
    reap
done

for name in "${!again[@]}"; do again[$name]="$name: ${again[$name]}"; done
((${#skips[@]} == 0)) || printf '%s\n' '' 'Skipped, as tests/skips.txt allows:' "${skips[@]/#/  }"
((${#again[@]} == 0)) || printf '%s\n' '' 'Ran twice:' "${again[@]/#/  }"
((programs)) || note 'no test has such a name' "$*"
((${#failures[@]} == 0)) || printf '%s\n' '' 'Failed:' "${failures[@]/#/  }"
((failed == 0 || programs == 0)) || echo "What the tests wrote is in $tmp"
((failed && programs)) || rm -rf "$tmp"
rmdir "$BUILD/tests/tmp" 2>/dev/null || true
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" ${#skips[@]}
((failed == 0))
