#!/usr/bin/env bats
# tests/run.sh itself: a copy of it runs small tests, some under the names of those that measure time.

load helpers

setup() {
    enter_folder
    export COPY=$PWD/copy
    mkdir -p copy/tests/cli copy/tests/unit/any copy/build/tests/unit/any
    cp "$REPO"/tests/{run.sh,environment.bash,tap.bash} copy/tests/
    ln -s "$REPO/tests/tools" copy/tests/
    printf '%s\n' '# where file reason' 'sanitizer unit/any/other not here' 'sanitizer unit/any/cmocka -' >copy/tests/skips.txt
    # bats would take a line that begins with @ for a test of this file.
    printf '@%s\n' 'test "another one" { sleep 2; }' >copy/tests/cli/watchdog.bats
    # The first runs fail, so many.
    # shellcheck disable=SC2016  # of the test
    printf '@%s\n' 'test "fails at first" { echo >>"$COPY/times"; [[ $(wc -l <"$COPY/times") -gt $(<"$COPY/fails") ]]; }' \
        >copy/tests/cli/faults.bats
}

# program NAME COMMANDS: a unit test that does this.
program() {
    : >"copy/tests/unit/any/$1.c"
    printf '%s\n' '#!/bin/bash' "$2" >"copy/build/tests/unit/any/$1"
    chmod +x "copy/build/tests/unit/any/$1"
}

runner() {
    TREE=pjreddie SAN=${SAN_HERE:-} BUILD=$COPY/build DARKNET=none ALEXEYAB_BUILD='' exec copy/tests/run.sh "$@"
}

# ends STATUS LINES TIMES NAME...: with these last lines, and cli/faults has run so often.
ends() {
    rm -f copy/times
    run -"$1" runner "${@:4}"
    echo "$output"
    [[ $output == *$'\n'"$2" && $(wc -l <copy/times) -eq $3 ]]
}

@test "what measures time and fails beside others runs again, once, alone, and the second end counts" {
    echo 1 >copy/fails
    ends 0 $'Ran twice:\n  cli/faults: it measures time, and ran beside others\n2 passed, 0 failed, 0 skipped' 2 cli/faults cli/watchdog
    echo 2 >copy/fails
    ends 1 '1 passed, 1 failed, 0 skipped' 2 cli/faults cli/watchdog
    echo 1 >copy/fails
    ends 1 '0 passed, 1 failed, 0 skipped' 1 cli/faults
}

@test "a program that ends early, or badly, a skip that is not allowed, and what a sanitizer finds are failures" {
    # shellcheck disable=SC2016  # of the programs
    {
        program good 'printf "%s\n" 1..2 "ok 1 - a" "ok 2 - b"'
        program early 'printf "%s\n" 1..2 "ok 1 - a"'
        program badly 'printf "%s\n" 1..1 "ok 1 - a"; exit 3'
        program nothing 'true'
        program fails 'printf "%s\n" 1..2 "not ok 1 - a" "ok 2 - b"; exit 1'
        program skips 'printf "%s\n" 1..1 "ok 1 - a # SKIP not here"'
        program other 'printf "%s\n" 1..1 "ok 1 - a # SKIP not here"'
        program dies 'kill -KILL 0'
        program cmocka 'printf "%s\n" 1..1 "not ok 1 # SKIP a"'
        program finds 'printf "%s\n" 1..1 "ok 1 - a"; eval "${TSAN_OPTIONS##* }"; printf "SUMMARY: %s\n" race >"$log_path.1"; cp "$log_path.1" "$log_path.2"'
    }
    SAN_HERE=thread run -1 runner unit/any
    echo "$output"
    [[ ${lines[-1]} == '6 passed, 7 failed, 2 skipped' ]]
    for line in 'badly: not ok - unit/any/badly: status 3, after 1 of 1 tests' \
        'dies: not ok - unit/any/dies: status 137, no end within 3000 s, after 0 of unplanned tests' 'early: not ok - unit/any/early: status 0, after 1 of 2 tests' \
        'fails: not ok 1 - a' 'finds: SUMMARY: race' 'nothing: not ok - unit/any/nothing: status 0, after 0 of unplanned tests' \
        'skips: ok 1 - a # SKIP not here (not allowed by tests/skips.txt)'; do
        grep -qxF "  unit/any/$line" <<<"$output"
    done
}

@test "Ctrl-C ends what runs" {
    # shellcheck disable=SC2016  # of the program
    program waits 'echo $$ >"$COPY/pid"; exec sleep 1000'
    set -m # where SIGINT is not ignored
    runner unit/any >log 2>&1 3>&- &
    set +m
    wait_for 'the test' test -s copy/pid
    kill -INT $!
    job_ended $!
    # shellcheck disable=SC2154  # by job_ended
    [[ $ended -eq 130 ]]
    all_gone "$(<copy/pid)"
}

@test "a loop that starts jobs keeps its rows" {
    rows=0
    while read -r _; do
        # shellcheck disable=SC2154  # helpers.bash
        "${mpiexec[@]}" -n 2 true
        rows=$((rows + 1))
    done <<<$'a\nb'
    [[ $rows -eq 2 ]]
}
