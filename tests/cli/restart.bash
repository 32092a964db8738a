# shellcheck shell=bash disable=SC2034,SC2154
# What the tests of cmn-run share.

CMN_RUN=$BUILD/bin/cmn-run

teardown() {
    local pid
    for pid in ${started:-}; do
        kill -KILL "$pid" 2>/dev/null || true
    done
}
