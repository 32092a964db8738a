# shellcheck shell=bash disable=SC2034,SC2154
# What the tests of cmn-run share.

CMN_RUN=$BUILD/bin/cmn-run

teardown() {
    local pid
    for pid in ${started:-}; do
        kill -KILL "$pid" 2>/dev/null || true
    done
}

# wait_for WHAT COMMAND...
wait_for() {
    local i what=$1
    shift
    for ((i = 0; i < 200 * SLOW; i++)); do
        ! "$@" || return 0
        sleep 0.1
    done
    echo "waited in vain for: $what"
    return 1
}
