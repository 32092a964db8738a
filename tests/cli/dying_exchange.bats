#!/usr/bin/env bats
# shellcheck disable=SC2030,SC2031,SC2154  # usable, mpiexec: helpers.bash; tests are functions that shellcheck takes for subshells
# A rank dies, or freezes, inside an exchange on one node: all others end in time, and the message names it. On two nodes:
# tests/hosts/faults.bats.

load helpers

setup() { enter_folder; }

teardown() {
    for file in rank-* */rank-*; do
        [[ ! -f $file ]] || kill -KILL "$(head -n 1 "$file")" 2>/dev/null || true
    done
}

# No rank runs any more, and none of their files in /dev/shm is there. mpiexec may be a moment ahead of them.
nothing_left() {
    local file shared
    for file in rank-*; do
        gone "$(head -n 1 "$file")" || return 1
        while IFS= read -r shared; do
            [[ ! -e $shared ]] || return 1
        done < <(sed 1d "$file")
    done
}

# ends COMMUNICATOR RANKS FAULT RANK [KEY VALUE]: with that fault in an exchange of 4 MB, the others end, before cmn_timeout would
# end them: it is 300 s where no key says otherwise.
ends() {
    local status=0
    echo "$1 on $2 ranks, rank $4: $3"
    rm -f rank-*
    EXCHANGE_FOLDER=$PWD timeout --kill-after=5 240 \
        "${mpiexec[@]}" -n "$2" "$EXCHANGE" "${@:5}" 1000003 100000 "$1" "$3" "$4" 4 >out 2>err || status=$?
    sed 's/^/  err: /' err
    echo "status $status"
    [[ $(grep -c "^$1 " out) -ge 4 && $(find . -name 'rank-*' | wc -l) -eq $2 ]]
    ((status != 0 && status != 124))
    wait_for 'the end of all ranks and of their shared memory' nothing_left
}

@test "SIGKILL inside each communicator's exchange: rank 0 of 2, and rank 1 of 3" {
    local name rank
    sort_communicators "${mpiexec[@]}" -n 2
    for name in "${usable[@]}"; do
        for rank in 0 1; do
            ends "$name" $((2 + rank)) die $rank
            grep -E "rank $rank\b.*(@| node )$(hostname)" err
        done
    done
}

@test "a rank that freezes inside an exchange over shared memory ends the job after cmn_timeout" {
    local name pid pids=()
    # Side by side, for each waits. A sound rank of a busy machine comes within these seconds.
    for name in shm hierarchical; do
        mkdir $name
        (
            cd $name || exit 1
            ends "$name" 2 freeze 1 -cmn_timeout 15
            grep -E '^cmn\[rank 0@.* rank 1@[^ ]+ did not come .*15 s \(cmn_timeout\)' err
        ) >$name.log 2>&1 3>&- &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do
        wait "$pid" || { cat ./*.log; return 1; }
    done
}
