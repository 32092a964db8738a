#!/usr/bin/env bash
# Feeds each target with inputs for FUZZ_SECONDS (60), and says what was found.
#
#   fuzz/run.sh ENGINE REPLAY     `make fuzz` does this; TARGETS="cfg image" are some of them
#
# Inputs that reach new places are kept in corpus/ beside ENGINE, and are where the next run begins. What is found is a file
# below found/; FUZZ_TARGET=target ENGINE FILE shows it again.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
engine=$(realpath "${1:?the fuzzed program}") replay=$(realpath "${2:?the program that lists the targets}")
work=$(dirname "$engine")
# Names in inputs lead nowhere from here.
mkdir -p "$work/empty"
cd "$work/empty"
: "${FUZZ_SECONDS:=60}" "${TARGETS:=}"
# Memory that Darknet loses at an error is given back by fuzz/memory.c; what cannot be had is refused, which is no finding.
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=1024:quarantine_size_mb=64
export MSAN_OPTIONS=allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 OPENBLAS_NUM_THREADS=1

# number NAME FILE: the figure that libFuzzer gave last.
number() {
    sed -n "s/.*$1[: ]*\\([0-9][0-9]*\\).*/\\1/p" "$2" | tail -n 1
}

# feed TARGET: one line about it. Fails when something was found.
feed() {
    local target=$1 corpus=$work/corpus/$1 found=$work/found/$1 log=$work/$1.log status=0 begin=$SECONDS file
    local folders=("$corpus") options=(-max_total_time="$FUZZ_SECONDS" -timeout=10 -rss_limit_mb=2500 -close_fd_mask=3
        -print_final_stats=1 -artifact_prefix="$found/")
    mkdir -p "$corpus" "$found" "$work/empty/$target"
    cd "$work/empty/$target"
    for file in "$root/fuzz/seeds/$target" "$root/fuzz/regression/$target"; do
        [[ ! -d $file ]] || folders+=("$file")
    done
    [[ ! -f $root/fuzz/dictionaries/$target.dict ]] || options+=(-dict="$root/fuzz/dictionaries/$target.dict")
    FUZZ_TARGET=$target "$engine" "${options[@]}" "${folders[@]}" >"$log" 2>&1 || status=$?
    printf '%s: %s executions in %s s, %s places reached, ' "$target" "$(number stat::number_of_executed_units "$log")" \
        "$((SECONDS - begin))" "$(number cov "$log")"
    if ((status == 0)); then
        echo 'no finding'
        return 0
    fi
    file=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
    echo "1 finding: ${file:-none was kept, see $log}"
    grep -aE '^SUMMARY|runtime error' "$log" | tail -n 1 || true
    return 1
}

failed=0
read -ra targets <<<"$TARGETS"
((${#targets[@]})) || mapfile -t targets < <("$replay" | awk '{ print $1 }')
for target in "${targets[@]}"; do
    "$replay" | grep -q "^$target " || { echo "fuzz/run.sh: there is no target $target; $replay lists them" >&2; exit 2; }
    feed "$target" || failed=1
done
exit "$failed"
