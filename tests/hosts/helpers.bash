# shellcheck shell=bash disable=SC2154
# What the tests on several nodes share: those of tests/cli, on the nodes of a cluster. A test file says
#     setup_file() { nodes 3; }
#     teardown_file() { cluster_down; }
#     setup() { enter_cluster; }

load ../cli/helpers
load cluster

EXCHANGE=$BUILD/tests/hosts/exchange

nodes() {
    cluster_up "$1" || export cluster_why
}

enter_cluster() {
    [[ -z ${cluster_why:-} ]] || skip "$cluster_why"
    enter_folder
    cluster_agree
}

# on SHAPE COMMAND...: the command under mpiexec, ended when it hangs.
on() {
    local job
    cluster_job "$1"
    shift
    timeout --kill-after=5 $((100 * SLOW)) "${job[@]}" "$@"
}

# As in tests/cli, but N is a shape, such as 2+2. train_on uses it.
darknet_on() {
    on "$1" "$DARKNET" "${@:2}"
}

# Names of all communicators that sum.
registered() {
    # shellcheck disable=SC2016  # backquotes of a table
    "$DARKNET" cmn list -md | sed -n '/^| key/q; s/^| `\(.*\)` |.*|.*|.*/\1/p' | grep -vx dummy
}

# sort_communicators SHAPE: sets usable to those that work there, and refused to those that say why they do not. Each is
# one or the other.
sort_communicators() {
    local name
    usable=() refused=()
    on "$1" "$EXCHANGE" 1 1 all >sorted 2>sorted.err || { cat sorted sorted.err; return 1; }
    while read -r name; do
        if grep -q "^$name refuses: ." sorted; then
            refused+=("$name")
        elif grep -q "^$name [0-9]" sorted; then
            usable+=("$name")
        else
            echo "$name neither exchanges nor refuses:"
            cat sorted
            return 1
        fi
    done < <(registered)
    echo "on $1 usable: ${usable[*]}; refused: ${refused[*]:-none}"
}
