#!/usr/bin/env bats
# Each cfg that Darknet ships is read, and trains two iterations on 2 ranks: made thin and small here, as it is by
# tests/upstream-cfgs.sh --full (tests/upstream-cfgs.md).

load helpers

setup() {
    enter_folder
}

# train COMMANDS [NAMES]: the cfgs whose command matches, and whose name does.
train() {
    local names
    mapfile -t names < <("$REPO/tests/upstream-cfgs.sh" --list |
        awk -v commands="^($1)\$" -v names="^(${2:-.*})" '$2 ~ commands && $1 ~ names { print $1 }')
    ((${#names[@]} > 0))
    WORK=$PWD LIMIT=$HANG_LIMIT run "$REPO/tests/upstream-cfgs.sh" "${names[@]}"
    echo "$output"
    ((status == 0))
    [[ $(grep -c '^ok [0-9]* - [^#]*$' <<<"$output") -eq ${#names[@]} ]]
}

@test 'classifiers, a to e: cfgs of upstream train two iterations on 2 ranks' {
    train classifier '[a-e]'
}

@test 'classifiers, f to z: cfgs of upstream train two iterations on 2 ranks' {
    train classifier '[f-z]'
}

@test 'detectors: cfgs of upstream train two iterations on 2 ranks' {
    train 'detector|yolo'
}

@test 'nets whose layers keep a state between steps, and nets without a loss, are refused' {
    train 'state|none'
}

@test 'each cfg of upstream has its row, and each row its cfg' {
    comm -3 <("$REPO/tests/upstream-cfgs.sh" --list | awk '{ print $1 }' | sort) \
        <(find "$REPO/build/darknet/cfg" -name '*.cfg' -exec basename {} .cfg \; | sort) >unknown
    cat unknown
    [[ ! -s unknown ]]
    # Without a command: only with a reason, and only this one.
    [[ $("$REPO/tests/upstream-cfgs.sh" --list | awk '$2 == "-" && NF > 4 { print $1 }') == writing ]]
    [[ $("$REPO/tests/upstream-cfgs.sh" --list | awk '$2 == "-"' | wc -l) -eq 1 ]]
}
