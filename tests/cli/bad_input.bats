#!/usr/bin/env bats
# shellcheck disable=SC2030,SC2031,SC2154  # tests are functions that shellcheck takes for subshells
# What people get wrong: one clear line, on every rank the end, a status that is not 0.

load helpers

setup() {
    enter_folder
    small_data 200 50
    mlp_cfg batch=20 >mlp.cfg
    train=(classifier train small.data mlp.cfg)
    valid=(classifier valid small.data mlp.cfg)
    # Zeros of the size of mlp.cfg's: what judges a network takes none without weights.
    { printf '\0\0\0\0\2\0\0\0\0\0\0\0' && head -c $((8 + 4 * (784 * 64 + 64 + 64 * 10 + 10))) /dev/zero; } >any.weights
}

# both PATTERN ARGUMENTS...: with -cmn on one rank, or `ranks`, and without.
both() {
    local pattern=$1
    shift
    cmn_only "$pattern" "$@" -cmn
    fails_clearly "$pattern" "$DARKNET" "$@"
}

# cmn_only PATTERN ARGUMENTS...: on one rank, or `ranks`.
cmn_only() {
    local pattern=$1
    shift
    fails_clearly_on "${ranks:-1}" "^cmn\[rank [0-2]@[^]]+\] .*($pattern)" "$@"
}

set_data() {
    sed -i "s|^$1=.*|$1=$2|" small.data
}

# other_folder_for_rank RANK: sets $apart, a program to be put before darknet: rank RANK runs in ./other, a copy of this
# folder, as it would on a host whose disk holds something else.
other_folder_for_rank() {
    mkdir -p other
    cp -P mlp.cfg small.data train.list valid.list labels.txt mnist other/
    printf '%s\n' '#!/bin/sh' "[ \"\$OMPI_COMM_WORLD_RANK\" != $1 ] || cd other || exit 3" 'exec "$@"' >apart.sh
    chmod +x apart.sh
    apart=$PWD/apart.sh
}

# shellcheck disable=SC2154  # mpiexec: helpers.bash
fails_apart() {
    local pattern=$1
    shift
    fails_clearly "$pattern" "${mpiexec[@]}" -n 3 "$apart" "$DARKNET" "$@"
}

@test "good input: the helpers let it pass" {
    run -1 fails_clearly_on 2 . "${train[@]}" -cmn -cmn_validate 0
    [[ $output == *'ended with status 0'* ]]
}

@test "cmn_data=scatter without a folder, and where other files than images and labels are read; cmn_data=root" {
    local scatter=(-cmn -cmn_data scatter -cmn_cache_dir .)
    cmn_only 'cmn_data=root is no longer a value: use cmn_data=scatter, with cmn_cache_dir' "${train[@]}" -cmn -cmn_data root
    cmn_only 'cmn_data=scatter needs cmn_cache_dir' "${train[@]}" -cmn -cmn_data scatter
    cmn_only 'cmn_data=scatter does not go with regressor train: .*: give every host the files' regressor train small.data mlp.cfg "${scatter[@]}"
    echo tag=1 >>small.data
    cmn_only 'cmn_data=scatter does not go with tag=1 in the .data file: .*: give every host the files' "${train[@]}" "${scatter[@]}"
}

@test "images with several tags need no file of labels" {
    mlp_cfg max_batches=1 >mlp.cfg
    { grep -v '^labels=' small.data; echo tag=1; } >tags.data
    darknet_on 1 classifier train tags.data mlp.cfg -cmn >out.txt 2>err.txt || { cat err.txt; return 1; }
}

@test "unknown key in the cfg, with the nearest one" {
    mlp_cfg cmn_comunicator=flat >mlp.cfg
    cmn_only 'mlp.cfg:[0-9]+: unknown key cmn_comunicator.*cmn_communicator' "${train[@]}" -cmn
}

@test "a key of cmn behind the last layer: it is told, where it is, that it has no effect" {
    mlp_cfg >mlp.cfg
    echo 'cmn_exact=on' >>mlp.cfg
    line=$(wc -l <mlp.cfg)
    darknet_on 2 "${train[@]}" -cmn -cmn_validate 0 >out.txt 2>err.txt
    if [[ $TREE == pjreddie ]]; then
        [[ $(grep -c "^cmn: mlp.cfg:$line: cmn_exact=on has no effect here: the keys of cmn belong to \[net\]$" err.txt) -eq 1 ]]
    else
        grep "Unused field: 'cmn_exact = on'" out.txt err.txt
    fi
}

@test "a .data file with an unknown key, and with one twice: a line for each, from rank 0" {
    printf '%s\n' bakcup=other top=5 >>small.data
    darknet_on 2 "${train[@]}" -cmn -cmn_validate 0 2>&1 | grep '^cmn: small.data' >said
    diff said - <<'END'
cmn: small.data:8: bakcup=other has no effect: unknown key; did you mean backup?
cmn: small.data:9: top=5 has no effect: the file has it twice, and the first one counts
END
    run -1 --separate-stderr "$DARKNET" cmn doctor small.data mlp.cfg
    echo "$output" >report
    [[ $(grep -A2 '^fault: 2 keys have no effect' report | sed -n 's/^  //p') == "$(sed 's/^cmn: //' said)" ]]
}

@test "a byte order mark before the first line of .data file, cfg, lists and labels is no part of it" {
    for file in small.data mlp.cfg train.list valid.list labels.txt; do
        sed -i $'1s/^/\xef\xbb\xbf/' "$file"
    done
    darknet_on 1 "${train[@]}" -cmn
    darknet_on 2 "${train[@]}" -cmn -cmn_data scatter -cmn_cache_dir .
    "$DARKNET" cmn doctor small.data mlp.cfg >report
    [[ $(tail -n 1 report) == 'doctor: nothing is wrong' ]]
}

@test "an option of Darknet without its number" {
    cmn_only 'command line: -thresh: a number must follow it' detector train small.data mlp.cfg -thresh -clear -cmn
    cmn_only 'command line: -i: a number must follow it' "${train[@]}" -cmn -i
}

@test "bad value, in the cfg and on the command line" {
    cmn_only 'cmn_batch=half.*global, per_rank' "${train[@]}" -cmn -cmn_batch half
    cmn_only 'cmn_seed=x.*whole number' "${train[@]}" -cmn -cmn_seed x
    mlp_cfg cmn_validate=-3 >mlp.cfg
    cmn_only 'mlp.cfg:[0-9]+: cmn_validate=-3.*0 to' "${train[@]}" -cmn
}

@test "cmn_scatter=shard with fewer images than ranks" {
    sed -i 3q train.list
    sed -i 1,2d train.list
    ranks=3 cmn_only '1 images.*3 ranks' "${train[@]}" -cmn -cmn_scatter shard -cmn_validate 0
}

@test "-cmn_key without -cmn" {
    fails_clearly 'without -cmn' "$DARKNET" "${train[@]}" -cmn_seed 7
}

@test "-cmn with a command that cannot be distributed" {
    cmn_only 'does not work with go train: .*without -cmn' go train mlp.cfg -cmn
    cmn_only 'does not work with classifier: .*run it without -cmn and mpiexec' classifier predict small.data mlp.cfg x.weights x.png -cmn
    cmn_only 'does not work with this command: .*run it without -cmn and mpiexec' nonsense -cmn
    cmn_only 'not a command: train small.data; did you mean classifier train, detector train, .*\?' train small.data mlp.cfg -cmn
}

@test "cfg, data file, lists, labels or weights are missing" {
    ranks=2 both 'none.cfg.*No such file' classifier train small.data none.cfg
    both 'none.cfg.*No such file' classifier valid small.data none.cfg any.weights
    both 'none.data.*No such file' classifier train none.data mlp.cfg
    both 'none.data.*No such file' classifier valid none.data mlp.cfg any.weights
    ranks=2 both 'none.weights.*No such file' "${train[@]}" none.weights
    both 'none.weights.*No such file' "${valid[@]}" none.weights
    set_data train none.list
    ranks=2 both 'none.list.*No such file' "${train[@]}"
    small_data 200 50
    set_data valid none.list
    both 'none.list.*No such file' "${valid[@]}" any.weights
    cmn_only 'none.list.*No such file' "${train[@]}" -cmn
    small_data 200 50
    set_data labels none.txt
    both 'none.txt.*No such file' "${train[@]}"
    both 'none.txt.*No such file' "${valid[@]}" any.weights
}

@test "missing image" {
    sed -i 's|.*|mnist/train/none_digit-1.png|' train.list
    ranks=2 both 'none_digit-1.png.*' "${train[@]}"
}

@test "one missing image among many, in training and in validation" {
    sed -i '7s|.*|mnist/train/none_digit-1.png|' train.list
    ranks=2 cmn_only 'none_digit-1.png' "${train[@]}" -cmn
    small_data 200 50
    sed -i '49s|.*|mnist/train/none_digit-1.png|' valid.list
    ranks=2 both 'none_digit-1.png' "${valid[@]}" any.weights
    ranks=2 cmn_only 'none_digit-1.png' "${train[@]}" -cmn
}

@test "empty lists and labels" {
    : >train.list
    cmn_only 'train.list' "${train[@]}" -cmn
    : >valid.list
    cmn_only 'valid.list' "${valid[@]}" any.weights -cmn
    small_data 200 50
    printf '\n\r\n  \n' >train.list
    cmn_only 'train.list' "${train[@]}" -cmn
    small_data 200 50
    : >labels.txt
    cmn_only 'labels.txt' "${train[@]}" -cmn
}

@test "a PNG that ends too early, a GIF" {
    head -c 60 "mnist/$(sed -n '1s|^mnist/||p' train.list)" >cut_digit-1.png
    printf 'GIF89a is no image' >animal_digit-1.png
    printf 'cut_digit-1.png\n%.0s' {1..50} >train.list
    both 'cut_digit-1.png": PNG: the file ends before the last pixel' "${train[@]}"
    printf 'animal_digit-1.png\n%.0s' {1..50} >valid.list
    both 'animal_digit-1.png": GIF files are not supported; convert it to JPEG or PNG' "${valid[@]}" any.weights
}

@test "a folder where a file should be" {
    mkdir folder.list folder.cfg
    cmn_only 'folder.cfg' classifier train small.data folder.cfg -cmn
    set_data train folder.list
    cmn_only 'folder.list' "${train[@]}" -cmn
}

@test "truncated weights" {
    darknet_on 1 "${train[@]}" -cmn -cmn_validate 0
    size=$(stat -c %s out/mlp.weights)
    for bytes in 0 19 1000 $((size - 4)); do
        head -c "$bytes" out/mlp.weights >cut.weights
        fails_clearly 'cut.weights' "$DARKNET" "${valid[@]}" cut.weights
    done
    both 'cut.weights' "${train[@]}" cut.weights
}

@test "labels that match no image" {
    printf 'cat-%d\n' 0 1 2 3 4 5 6 7 8 9 >labels.txt
    both 'mnist/train/[0-9]+_digit-[0-9].png' "${train[@]}"
}

@test "classes that differ from the network's outputs" {
    set_data classes 12
    printf 'digit-%d\n' 10 11 >>labels.txt
    cmn_only '12.*10' "${train[@]}" -cmn
    cmn_only '12.*10' "${valid[@]}" any.weights -cmn
    set_data classes 5
    cmn_only '5.*10' "${train[@]}" -cmn
    cmn_only '5.*10' "${valid[@]}" any.weights -cmn
}

@test "fewer labels than classes" {
    sed -i 8q labels.txt
    cmn_only 'labels.txt.*8.*10' "${train[@]}" -cmn
    cmn_only 'labels.txt.*8.*10' "${valid[@]}" any.weights -cmn
    printf 'digit-%d\n' 8 9 >>labels.txt
    sed -i '3s/.*//' labels.txt
    cmn_only 'labels.txt:3: the label is empty' "${train[@]}" -cmn
}

@test "a backup folder whose path has no room for names of weights" {
    name=$(printf 'backup%.0s' {1..39})
    set_data backup "$name"
    cmn_only "backup=$name in the .data file: with the cfg's name it may have 235 bytes, .*, and has 237" "${train[@]}" -cmn
}

@test "top above the number of classes" {
    set_data top 11
    cmn_only 'top=11' "${valid[@]}" any.weights -cmn
}

@test "a tree with more or fewer classes than its layer" {
    for classes in 9 11; do
        seq -f 'name-%g -1' $classes >a.tree
        { grep -v softmax mlp.cfg; printf '%s\n' '[softmax]' tree=a.tree; } >tree.cfg
        cmn_only "a\\.tree has $classes classes, \\[softmax\\] 10 inputs" classifier train small.data tree.cfg -cmn
        { net_section channels=3; printf '%s\n' '[convolutional]' filters=15 size=1 stride=1 activation=linear \
            '[region]' anchors=1,1 classes=10 coords=4 num=1 tree=a.tree; } >tree.cfg
        cmn_only "a\\.tree has $classes classes, \\[region\\] 10" detector train small.data tree.cfg -cmn
    done
}

@test "a backup folder that cannot be written, said before training" {
    mlp_cfg batch=20 max_batches=1000000 >mlp.cfg
    touch file
    set_data backup file/below
    cmn_only 'file/below.*Not a directory' "${train[@]}" -cmn
    set_data backup /proc/self
    cmn_only '/proc/self' "${train[@]}" -cmn
}

@test "a backup folder without the right to write" {
    [[ $(id -u) -ne 0 ]] || skip 'root may write everywhere'
    chmod 555 out
    cmn_only 'out.*Permission denied' "${train[@]}" -cmn
}

@test "a backup folder that cannot be written, without -cmn" {
    mlp_cfg batch=20 max_batches=1 >mlp.cfg
    set_data backup /proc/self
    fails_clearly '/proc/self/mlp' "$DARKNET" "${train[@]}"
}

@test "a log folder that is not there" {
    ranks=2 cmn_only 'cmn_rank_logs.*none/rank-1.log.*No such file' "${train[@]}" -cmn -cmn_rank_logs none
}

@test "images unreadable on one rank only" {
    other_folder_for_rank 2
    rm other/mnist
    fails_apart '^cmn\[rank 2@.*digit-[0-9].png' "${train[@]}" -cmn -cmn_validate 0
    fails_apart '^cmn\[rank 2@.*digit-[0-9].png' "${valid[@]}" any.weights -cmn
}

# Each decides a training, and could be another one on another host, or be edited between two ranks' reading it.
@test "rank 0 alone reads cfg, data file, lists and weights: others need none, and theirs change nothing" {
    darknet_on 2 "${train[@]}" -cmn -cmn_validate 0 -cmn_seed 7
    mv out/mlp.weights expected
    # shellcheck disable=SC2154,SC2317
    apart() {
        timeout "$HANG_LIMIT" "${mpiexec[@]}" -n 2 "$apart" "$DARKNET" "$@" -cmn
    }
    for change in 'rm train.list valid.list mlp.cfg small.data' \
        "sed -i '/^valid/d; s/^top=.*/top=3/; s/output=64/output=65/; s/momentum=.*/momentum=0.5/; s/^batch=.*/batch=10\ncmn_communicator=flat/' small.data mlp.cfg"; do
        rm -rf other
        other_folder_for_rank 1
        (cd other && eval "$change")
        apart "${train[@]}" -cmn_validate 0 -cmn_seed 7
        cmp out/mlp.weights expected
        apart "${valid[@]}" out/mlp.weights
    done
}

@test "another command on one rank" {
    # shellcheck disable=SC2016  # apart.sh expands it
    printf '%s\n' '#!/bin/bash' '[[ $OMPI_COMM_WORLD_RANK != 2 ]] || set -- "$1" "$2" valid "${@:4}"' 'exec "$@"' >apart.sh
    chmod +x apart.sh
    apart=$PWD/apart.sh
    fails_apart "^cmn\\[rank 2@[^]]+\\] .*command = classifier train.*command = classifier valid" "${train[@]}" any.weights -cmn
}

@test "another communicator on one rank, instead of waiting for each other" {
    rank_1_runs 'set -- "$@" -cmn_communicator flat'
    fails_clearly '^cmn\[rank 1@.*set of keys differs.*"cmn_communicator = auto", .*"cmn_communicator = flat"' \
        "${mpiexec[@]}" -n 2 "$otherwise" "$DARKNET" "${train[@]}" -cmn
}

@test "a variable CMN_DEBUG_… that nobody knows, a wrong value, and another one on one rank" {
    CMN_DEBUG_EXCHANG=ring fails_clearly_on 1 'environment: unknown variable CMN_DEBUG_EXCHANG: unset it' "${train[@]}" -cmn
    CMN_DEBUG_EXCHANGE=tree fails_clearly_on 1 'environment: CMN_DEBUG_EXCHANGE=tree: the value must be one of: pairwise, halving' "${train[@]}" -cmn
    rank_1_runs 'export CMN_DEBUG_BUCKET_MB=0.5'
    fails_clearly '^cmn\[rank 1@.*set of keys differs.*"CMN_DEBUG_BUCKET_MB = unset", this rank has "CMN_DEBUG_BUCKET_MB = 0.5"' \
        "${mpiexec[@]}" -n 2 "$otherwise" "$DARKNET" "${train[@]}" -cmn
    rank_1_runs 'export CMN_DEBUG_BUCKET_MB=0'
    fails_clearly '^cmn\[rank 1@.*environment: CMN_DEBUG_BUCKET_MB=0: the value must be a number' "${mpiexec[@]}" -n 2 "$otherwise" "$DARKNET" "${train[@]}" -cmn
}

@test "options before the verb, as many scripts have them" {
    darknet_on 1 classifier -dont_show -clear train small.data mlp.cfg -cmn >train.log 2>&1 || { cat train.log; false; }
    grep '^cmn: 1 rank on 1 node' train.log
    fails_clearly_on 1 '-cmn does not work with classifier: ' classifier -clear small.data mlp.cfg -cmn
}

@test "--save-weights N is the distance between weights that are saved" {
    fails_clearly_on 1 'command line: --save-weights 2k: not a whole number' "${train[@]}" -cmn --save-weights 2k
    fails_clearly 'Unknown option --save-weights' "$DARKNET" "${train[@]}" --save-weights 2
    [[ -f $REPO/data/mnist/train.list ]] || skip 'data/mnist is missing: make mnist'
    mkdir labels
    sed 's|^|'"$REPO"'/|; 4q' "$REPO/data/mnist/train.list" >few.list
    while IFS= read -r image; do cp "$image" . && echo '0 .5 .5 .5 .5' >"$(basename "$image" .png).txt"; done <few.list
    sed -i 's|.*/||' few.list
    printf '%s\n' classes=1 train=few.list backup=out >few.data
    net_section width=32 height=32 channels=3 batch=2 max_batches=5 >few.cfg
    printf '%s\n' '[convolutional]' filters=6 activation=linear '[yolo]' anchors=4,4 classes=1 >>few.cfg
    darknet_on 1 detector train few.data few.cfg -cmn -cmn_validate 0 --save-weights 2
    [[ $(cd out && echo few_?.weights) == 'few_2.weights few_4.weights' ]]
}

@test "a JSON log that cannot be written is noticed before the first step" {
    cmn_only 'none/log.json.*No such file' "${train[@]}" -cmn -cmn_json none/log.json
    fails_clearly_on 1 'JSON log /proc/no/log.json' "${train[@]}" -cmn -cmn_json /proc/no/log.json
    run -1 grep -E '^[0-9]+, .* images' fails.out
}

@test "no arguments, unknown commands" {
    fails_clearly . "$DARKNET"
    fails_clearly 'does not work with this command' "$DARKNET" nosuchcommand -cmn
    fails_clearly . "$DARKNET" classifier -cmn
    fails_clearly . "$DARKNET" classifier nosuch small.data mlp.cfg -cmn
}

# within LIMIT PATTERN: on 2 ranks under `ulimit LIMIT` the training gets through, or says one line that matches.
within() {
    local limit=$1 pattern=$2 status=0
    fails_clearly "$pattern" "${mpiexec[@]}" -n 2 sh -c "ulimit $limit && exec \"\$@\"" - "$DARKNET" "${train[@]}" -cmn \
        -cmn_validate 0 >said || status=$?
    cat said
    ((status == 0)) || grep -q 'ended with status 0' said
}

@test "limits of address space and of a file's size: a line, and neither a crash nor endless waiting" {
    [[ -z $SAN ]] || skip 'instrumented programs need more address space than any limit leaves'
    # OpenBLAS 0.3.29 hangs before main() where a limit has no room for its threads (docs/use/troubleshooting.md).
    for kib in 400000 600000; do
        within "-v $kib" '^cmn\[rank [01]@.*(ulimit -v|memory|[Tt]hread|window)'
    done
    fails_clearly 'ulimit -f. is 500 KiB' sh -c "ulimit -f 1000 && exec \"\$@\"" - "$DARKNET" "${train[@]}" -cmn
    # Larger than the files in which Open MPI's ranks share memory, and smaller than the weights.
    sed -i 's/^output=64$/output=16000/' mlp.cfg
    train+=(-cmn_communicator flat)
    within '-f 60000' '^cmn\[rank 0@.*out/mlp.*weights.*File too large'
}

# Each rank is process 1 of its own container. Where rank 1 would look for the window another file is open: it stays as
# it is.
@test "ranks of one host in different containers: shm is refused, and no other file is taken for the window" {
    unshare --pid --fork --mount-proc true 2>/dev/null || skip 'processes cannot have namespaces of their own here'
    # shellcheck disable=SC2016  # apart.sh expands it
    printf '%s\n' '#!/bin/bash' '[[ $OMPI_COMM_WORLD_RANK == 0 ]] || for n in {3..99}; do' \
        '    [[ -e /proc/self/fd/$n ]] || eval "exec $n<>victim"' 'done' \
        'exec unshare --pid --fork --kill-child --mount-proc "$@"' >apart.sh
    chmod +x apart.sh
    apart=$PWD/apart.sh
    : >victim
    mpiexec+=(--mca btl 'self,tcp' --mca btl_tcp_if_include lo)
    fails_clearly 'shared window cannot be had: /proc/1/fd/[0-9]+ is not rank 0.s .*containers.*use cmn_communicator=flat' \
        "${mpiexec[@]}" -n 2 "$apart" "$DARKNET" "${train[@]}" -cmn -cmn_communicator shm
    [[ -e victim && ! -s victim ]]
    conv_cfg max_batches=2 | sed 's/^filters=8/&\nbatch_normalize=1/' >mlp.cfg
    "${mpiexec[@]}" -n 2 "$apart" "$DARKNET" "${train[@]}" -cmn -cmn_sync_bn on -cmn_validate 0 2>train.err
    grep '^cmn: cmn_sync_bn: statistics go by messages only: a shared window cannot be had' train.err
    grep 'communicator flat (auto: one node, shm failed' train.err
    [[ $(grep -c '^cmn: the watchdogs of a node cannot see each other: a shared window' train.err) -eq 1 ]]
}
