#!/usr/bin/env bash
# Runs the tests and prints their TAP; the last line is "N passed, N failed, N skipped".
#
#   tests/run.sh [NAME...]    only the programs whose name contains one of these, e.g. ranks/mpi or cli/bad_input
#
# Files of tests/cli and tests/hosts wait more than they compute: TEST_JOBS of them (3) run side by side. Of the tests of
# ranks, whose waiting takes the cores, one more than there are cores for. Each is printed when it has ended.
#
# `make test` sets the environment: DARKNET (the program), BUILD (folder of the variant), MPIEXEC (a command with
# arguments), SAN (sanitizers of this variant, or empty), CC, CMN_LIBS. Everything is written below
# $BUILD/tests/tmp, which stays when a test has failed.
set -euo pipefail
cd "$(dirname "$0")/.."

: "${BUILD:=$PWD/build/cpu}" "${DARKNET:=$BUILD/bin/darknet}" "${CC:=gcc}" "${SAN:=}" "${NP:=2}" "${TEST_JOBS:=3}"
if [[ -z ${MPIEXEC:-} ]]; then
    MPIEXEC='mpiexec --oversubscribe --bind-to none --mca mpi_yield_when_idle 1'
    [[ $(id -u) -ne 0 ]] || MPIEXEC+=' --allow-run-as-root'
fi
read -ra mpiexec <<<"$MPIEXEC"
export BUILD DARKNET CC SAN NP MPIEXEC
export CMOCKA_MESSAGE_OUTPUT=TAP LC_ALL=C
# What Open MPI takes here anyway. Its other ways look for adapters first, 0.2 s in each process (libpsm2).
export OMPI_MCA_pml=${OMPI_MCA_pml:-ob1}
# The tests call make themselves, and count on the defaults of what they run.
unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES DARKNET_TREE MNIST_DIR CDPATH

mkdir -p "$BUILD/tests/tmp"
tmp=$(mktemp -d "$BUILD/tests/tmp/run-XXXXXX")
export CMN_TEST_TMP=$tmp
passed=0 failed=0 skipped=0
failures=()

# A hang is found by these; they are no statement about speed.
slow=1
[[ -z $SAN ]] || slow=5
export BATS_TEST_TIMEOUT=$((300 * slow))

tool=$tmp/compare_weights
"$CC" -std=c11 -O2 -Wall -Wextra -o "$tool" tests/tools/compare_weights.c -lm
export COMPARE_WEIGHTS=$tool

# note NAME LINE: a failure, for now and for the summary.
note() {
    failed=$((failed + 1))
    failures+=("$1: $2")
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
            'ok '*'# '[Ss][Kk][Ii][Pp]*) done_tests=$((done_tests + 1)) skipped=$((skipped + 1)) ;;
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

# Of what runs: name, when it began, and the folder of its output, by process id.
declare -A running=()
jobs=$TEST_JOBS # how many may run side by side

# begin NAME LIMIT COMMAND...: in the background, as soon as there is room for it, and in a process group of its own, where
# Ctrl-C is not ignored. What the tests of ranks print comes by way of the file RANKS_TAP.
begin() {
    local name=$1 limit=$(($2 * slow)) folder
    shift 2
    while ((${#running[@]} >= jobs)); do reap; done
    folder=$(mktemp -d "$tmp/side-XXXXXX")
    echo "$limit" >"$folder/limit"
    [[ -z ${RANKS_TAP:-} ]] || : >"$RANKS_TAP"
    watched "$name"
    set -m
    {
        status=0
        timeout --foreground --kill-after=10 "$limit" "$@" </dev/null >"$folder/tap" 2>"$folder/stderr" || status=$?
        [[ -z ${RANKS_TAP:-} ]] || cat "$RANKS_TAP" >>"$folder/tap"
        times >"$folder/times"
        echo "$status $SECONDS" >"$folder/status"
    } &
    set +m
    running[$!]="$name $SECONDS $folder"
}

# cpu_seconds FILE: what the children of the shell used whose `times` it has.
cpu_seconds() {
    tail -n 1 "$1" | tr 'ms' '  ' | awk '{ printf "%.0f", 60 * $1 + $2 + 60 * $3 + $4 }'
}

# reap: waits for one of them, then prints and counts all that have ended.
reap() {
    local pid name began folder status ended
    wait -n "${!running[@]}" || true
    for pid in "${!running[@]}"; do
        read -r name began folder <<<"${running[$pid]}"
        [[ -s $folder/status ]] || { ! kill -0 "$pid" 2>/dev/null || continue; echo "137 $SECONDS" >"$folder/status"; }
        read -r status ended <"$folder/status"
        unset "running[$pid]"
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

for source in tests/unit/*/*.c; do
    name=${source#tests/} name=${name%.c}
    if wanted "$name" "$@"; then
        TMPDIR=$tmp begin "$name" 300 "$BUILD/tests/$name"
    fi
done

worlds=(1 2 3 4 5)
[[ -z $SAN ]] || worlds=(1 3)
for n in "${worlds[@]}"; do
    jobs=$((1 + $(nproc) / n))
    for source in tests/ranks/*/*.c tests/gpu/*/*.c; do
        [[ $source != tests/gpu/fake/* ]] || continue
        name=${source#tests/} name=${name%.c}
        if wanted "$name-$n" "$@"; then
            RANKS_TAP=$tmp/${name//\//-}-$n.tap begin "$name-$n" 300 "${mpiexec[@]}" -n "$n" "$BUILD/tests/$name"
        fi
    done
done

jobs=$TEST_JOBS
# It compiles on all cores, and after the others it would run alone. It needs what the Makefile knows about libraries.
if wanted patches/check-patches "$@" && [[ -z $SAN ]]; then
    if [[ -n ${CMN_LIBS:-} ]]; then
        begin patches/check-patches 900 darknet/check-patches.sh
    else
        begin patches/check-patches 10 echo '1..1'$'\n''ok 1 # SKIP it is run by make test and make check-patches'
    fi
fi

for file in tests/cli/*.bats tests/hosts/*.bats; do
    name=${file#tests/} name=${name%.bats}
    if wanted "$name" "$@"; then
        begin "$name" 900 bats --tap --timing --tempdir "$tmp/${name//\//-}" "$file"
    fi
done
while ((${#running[@]})); do reap; done

# It has the GPU alone. It finds the newest GPU build by itself, and skips where there is none, or no GPU.
if wanted gpu/run "$@" && [[ -z $SAN ]]; then
    begin gpu/run 900 env -u DARKNET tests/gpu/run.sh
    reap
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
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
((failed == 0))
