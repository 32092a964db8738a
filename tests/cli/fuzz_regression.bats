#!/usr/bin/env bats
# Hostile input: all that the fuzzers begin with and all that they have found (fuzz/), through the program's own readers.

load helpers

REPLAY=$BUILD/replay

setup() {
    enter_folder
    export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=0} allocator_may_return_null=1"
}

@test "what the fuzzers begin with, and what they have found, ends no reader by a signal" {
    "$REPLAY" >targets
    (($(wc -l <targets) >= 7))
    failed=0
    while read -r target _; do
        files=("$REPO/fuzz/seeds/$target"/*)
        [[ -f ${files[0]} ]] || { echo "$target has no seeds"; false; }
        [[ ! -d $REPO/fuzz/regression/$target ]] || files+=("$REPO/fuzz/regression/$target"/*)
        "$REPLAY" "$target" "${files[@]}" || failed=1
    done <targets
    ((failed == 0))
}

@test "memory that cannot be had is one line" {
    [[ -z $SAN ]] || skip 'sanitizers need more memory than a limit leaves'
    small_data 60 10
    mlp_cfg >net.cfg
    sed -i 's/output=64/output=1000000/' net.cfg
    fails_clearly 'Out of memory: [0-9]+ bytes' bash -c 'ulimit -v 2000000; exec "$@"' - "$DARKNET" classifier train small.data net.cfg
}
