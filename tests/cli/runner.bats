#!/usr/bin/env bats
# tests/run.sh itself: a copy of it runs small tests under the names of those that measure time.

load helpers

setup() {
    enter_folder
    export COPY=$PWD/copy
    mkdir -p copy/tests/cli copy/build
    cp "$REPO/tests/run.sh" copy/tests/
    ln -s "$REPO/tests/tools" copy/tests/
    : >copy/tests/skips.txt
    # bats would take a line that begins with @ for a test of this file.
    printf '@%s\n' 'test "another one" { sleep 2; }' >copy/tests/cli/watchdog.bats
    # The first runs fail, so many.
    # shellcheck disable=SC2016  # of the test
    printf '@%s\n' 'test "fails at first" { echo >>"$COPY/times"; [[ $(wc -l <"$COPY/times") -gt $(<"$COPY/fails") ]]; }' \
        >copy/tests/cli/faults.bats
}

# ends STATUS LINES TIMES NAME...: with these last lines, and cli/faults has run so often.
ends() {
    rm -f copy/times
    TREE=pjreddie SAN='' BUILD=$COPY/build DARKNET=none ALEXEYAB_BUILD='' run -"$1" copy/tests/run.sh "${@:4}"
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
