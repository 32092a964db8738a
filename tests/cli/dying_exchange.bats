#!/usr/bin/env bats
# shellcheck disable=SC2030,SC2031,SC2154  # usable, mpiexec: helpers.bash; tests are functions that shellcheck takes for subshells
# A rank dies, or freezes, inside an exchange on one node: all others end in time, and the message names it. On two nodes:
# tests/hosts/faults.bats.

load helpers

setup() { enter_folder; }

teardown() {
    for file in rank-*; do
        [[ ! -f $file ]] || kill -KILL "$(head -n 1 "$file")" 2>/dev/null || true
    done
}

# No rank runs any more, and none of their files in /dev/shm is there. mpiexec may be a moment ahead of them.
nothing_left() {
    local i file shared left=()
    for ((i = 0; i < 50; i++)); do
        left=()
        for file in rank-*; do
            gone "$(head -n 1 "$file")" || left+=("process of $file")
            while IFS= read -r shared; do
                [[ ! -e $shared ]] || left+=("$shared")
            done < <(sed 1d "$file")
        done
        ((${#left[@]})) || return 0
        sleep 0.1
    done
    printf 'left: %s\n' "${left[@]}"
    return 1
}

# ends COMMUNICATOR RANKS FAULT RANK [KEY VALUE]: with that fault in an exchange of 4 MB, the others end within 10 s.
ends() {
    local status=0 begin
    echo "$1 on $2 ranks, rank $4: $3"
    rm -f rank-*
    EXCHANGE_FOLDER=$PWD timeout --kill-after=5 $((30 * SLOW)) \
        "${mpiexec[@]}" -n "$2" "$EXCHANGE" "${@:5}" 1000003 100000 "$1" "$3" "$4" 4 >out 2>err || status=$?
    begin=$(stat -c %Y rank-0)
    sed 's/^/  err: /' err
    echo "status $status, $(($(date +%s) - begin)) s after it"
    [[ $(grep -c "^$1 " out) -ge 4 && $(find . -name 'rank-*' | wc -l) -eq $2 ]]
    ((status != 0 && status != 124))
    (($(date +%s) - begin <= 10 * SLOW))
    nothing_left
}

@test "SIGKILL inside each communicator's exchange, 2 and 3 ranks" {
    sort_communicators "${mpiexec[@]}" -n 2
    for name in "${usable[@]}"; do
        for ranks in 2 3; do
            ends "$name" $ranks die 1
            grep -E "rank 1\b.*(@| node )$(hostname)" err
        done
    done
}

@test "SIGKILL of rank 0 inside each communicator's exchange" {
    sort_communicators "${mpiexec[@]}" -n 2
    for name in "${usable[@]}"; do
        ends "$name" 2 die 0
        grep -E "rank 0\b.*(@| node )$(hostname)" err
    done
}

@test "a rank that freezes inside an exchange over shared memory ends the job after cmn_timeout" {
    for name in shm hierarchical two_dimensional single_node; do
        ends "$name" 2 freeze 1 -cmn_timeout 2
        grep -E '^cmn\[rank 0@.* rank 1@[^ ]+ did not come .*2 s \(cmn_timeout\)' err
    done
}
