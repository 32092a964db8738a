#!/usr/bin/env bats
# shellcheck disable=SC2154  # variables of helpers.bash
# cmn_data=root: images and labels lie on rank 0's host alone.

load helpers
load ../cli/upstream

setup_file() { nodes 3; }
teardown_file() { cluster_down; }

setup() {
    enter_cluster
    small_data 300 60
    mlp_cfg batch=60 max_batches=10 >mlp.cfg
}

teardown() { end_all; }

# hide FOLDER: nothing of it is on the other nodes from here on.
hide() {
    mkdir -p empty
    cluster_differs node2 "$1" empty
    cluster_differs node3 "$1" empty
}

hide_images() { hide mnist; }

@test "1+1, 2+1: the bits of local files; each image goes over the link once" {
    local bytes set shape sent
    set=$(head -n 300 train.list | xargs -d '\n' cat | wc -c)
    for shape in 1+1 2+1; do
        rm -f out/*
        bytes=$(cluster_payload node1)
        CMN_DEBUG_EXCHANGE=pairwise train_on "$shape" mlp.cfg -cmn_communicator flat
        bytes=$(($(cluster_payload node1) - bytes))
        mv "out/mlp$FINAL.weights" shared.weights
        hide_images
        sent=$(cluster_payload node1)
        CMN_DEBUG_EXCHANGE=pairwise train_on "$shape" mlp.cfg -cmn_communicator flat -cmn_data root
        sent=$(($(cluster_payload node1) - sent))
        cluster_agree
        rmdir empty
        grep -E '^cmn: serves images and labels to 1 rank on other nodes$' train.log
        echo "$shape: set $set, shared $bytes, root $sent"
        cmp shared.weights "out/mlp$FINAL.weights"
        # 10 steps of 60 images are two epochs, and a batch is loaded ahead; the cache keeps images.
        ((sent - bytes > set / 4 && sent - bytes < 2 * set + 200000))
    done
}

# pictures COUNT: so many images of 120 kB for train.list, no two alike. Sets set, their bytes.
pictures() {
    local i
    mkdir pics
    for ((i = 0; i < $1; i++)); do
        { printf 'P6 200 200 255\n' && head -c 120000 /dev/urandom; } >"pics/$i.digit-$((i % 10)).ppm"
        echo "pics/$i.digit-$((i % 10)).ppm"
    done >train.list
    set=$(cat pics/* | wc -c)
}

# sent_by ARGUMENTS...: trains on three hosts; sets sent, what has left rank 0's.
sent_by() {
    sent=$(cluster_payload node1)
    CMN_DEBUG_EXCHANGE=pairwise train_on 1+1+1 mlp.cfg -cmn_communicator flat "$@"
    sent=$(($(cluster_payload node1) - sent))
}

# pictures_sent STEPS ARGUMENTS...: sets pictures, what left rank 0's host for the images of so many steps: the rest leaves it with
# local files, too. The weights are equal.
pictures_sent() {
    local rest
    mlp_cfg batch=20 max_batches="$1" >mlp.cfg
    rm -f out/*
    sent_by "${@:2}"
    rest=$sent
    mv "out/mlp$FINAL.weights" shared.weights
    hide pics
    sent_by "${@:2}" -cmn_data root
    cluster_agree
    cmp shared.weights "out/mlp$FINAL.weights"
    pictures=$((sent - rest))
    echo "$*: $sent bytes left node1, $rest with local files: $((1000 * pictures / set)) thousandths of the set"
}

# A step of 60 images is an epoch. Each image has 88 bytes that are not its own (head, two MACs, what went wrong).
@test "1+1+1: bytes at the interface: each image goes once to each host that trains it, and none twice" {
    local first
    pictures 60
    # Each host has a third of the images, and stays with it: two thirds leave node1 in the first epoch, and nothing later.
    pictures_sent 1 -cmn_scatter shard
    first=$pictures
    ((first > 66 * set / 100 && first < 70 * set / 100))
    pictures_sent 4 -cmn_scatter shard
    ((pictures - first < set / 50))
    # Each host takes another third in each epoch: after eight of them, and one or two that are loaded ahead, it has nearly all.
    pictures_sent 8
    ((pictures > 180 * set / 100 && pictures < 205 * set / 100))
}

@test "1+1: a validation reads the images of rank 0's host, those of a list's first line with a byte order mark, too" {
    sed -i $'1s/^/\xef\xbb\xbf/' train.list valid.list
    hide_images
    darknet_on 1+1 classifier train small.data mlp.cfg -cmn -cmn_seed 7 -cmn_data root >train.log 2>&1 || { cat train.log; false; }
    grep -E 'accuracy' train.log
}

@test "1+1: a path may be as long as one of a local file, with blanks and other letters than ASCII" {
    local path
    path=deep$(printf '/%0200d' {1..18})
    mkdir -p "$path" empty && path+='/ ö 世界.digit-5.png'
    cp "$(head -n 1 train.list)" "$path"
    for ((i = 0; i < 120; i++)); do echo "$path"; done >train.list
    cluster_differs node2 deep empty
    train_on 1+1 mlp.cfg -cmn_data root
}

@test "1+1: an image that is nowhere is named" {
    mkdir gone
    sed 's|mnist/|gone/|' train.list >gone.list
    cp gone.list train.list
    run -1 darknet_on 1+1 classifier train small.data mlp.cfg -cmn -cmn_seed 7 -cmn_data root -cmn_validate 0
    # Both ranks load at once: one line is rank 0's own, the other names its host.
    grep -E 'Cannot load (image "gone/.*": No such file or directory$|"gone/.*": No such file or directory on node1, rank 0)' <<<"$output"
}

@test "1+1: boxes come with the images; without them an image and its label file are named" {
    load ../cli/drivers
    sed -n '1,24p' train.list >few.list && mv few.list train.list
    make_data
    yolo_cfg >yolo.cfg
    echo valid=data.list >>data.data
    train=(detector train data.data yolo.cfg -cmn -cmn_seed 7 -cmn_batch global)
    darknet_on 1+1 "${train[@]}" >shared.log 2>&1 || { cat shared.log; false; }
    mv out/yolo_final.weights shared.weights
    rm -f out/*
    mkdir empty
    cluster_differs node2 images empty
    cluster_differs node2 labels empty
    cluster_differs node2 mnist empty
    run -1 darknet_on 1+1 "${train[@]}"
    grep -E 'rank 1@node2\].*data/(images|labels)/' <<<"$output"
    darknet_on 1+1 "${train[@]}" -cmn_data root >root.log 2>&1 || { cat root.log; false; }
    cmp shared.weights out/yolo_final.weights
    rm labels/05.txt out/*
    run -1 darknet_on 1+1 "${train[@]}" -cmn_data root
    grep -E 'data/labels/05.txt: no label file (for data/images/05.png|on node1, .*); create an empty one' <<<"$output"
}

# The line about the connection is for one that breaks alone (tests/ranks/data/root_files.c), and comes after six seconds. On a busy
# machine mpiexec may take as long to end the other rank.
@test "1+1: rank 0 is killed while its files are read: the launcher or the watchdog says so, and the connection nothing" {
    local job status
    mlp_cfg max_batches=10000000 >mlp.cfg
    hide_images
    cluster_job 1+1
    for _ in 1 2 3 4 5; do
        rm -f out/* job.err
        timeout --kill-after=5 $((200 * SLOW)) "${job[@]}" "$DARKNET" classifier train small.data mlp.cfg -cmn -cmn_seed 7 \
            -cmn_data root -cmn_cache_mb 0 -cmn_validate 0 >job.out 2>job.err 3>&- &
        started=$!
        wait_for 'the first epoch' grep -aqs 'Saving weights' job.err || { cat job.err; return 1; }
        cluster_run kill -KILL "$(pid_of 0)"
        status=0
        wait "$started" || status=$?
        cat job.err
        ((status != 124))
        mpiexec_failed "$status"
        # Open MPI 5 breaks the line.
        tr '\n' ' ' <job.err | grep -aoE 'process rank 0 .{,40}on node node1 exited on signal 9|rank 0@node1'
        grep -aq 'cmn_data=root' job.err || break
    done
    run -1 grep -a 'cmn_data=root' job.err
}

# heard: node2 has had more than greetings from rank 0's listener.
heard() {
    local ports port
    ports=$(cluster_on node1 ss -Hltnp | sed -n 's/.* 10\.77\.0\.1:\([0-9]*\) .*"darknet".*/\1/p')
    [[ $(wc -w <<<"$ports") -eq 1 ]] || return 1
    for port in $ports; do
        cluster_on node2 ss -Htin state established dport = ":$port" dst 10.77.0.1 |
            awk 'match($0, /bytes_received:[0-9]+/) && substr($0, RSTART + 15, RLENGTH - 15) > 2000 { came = 1 } END { exit !came }' || return 1
    done
}

# ended RANK
ended() {
    local pid
    pid=$(pid_of "$1") || return 1
    [[ -z $pid ]]
}

# What mpiexec would do at once it cannot do while it is stopped: it is for the other rank to say what has become of rank 0.
# Open MPI 4's mpiexec may then wait for rank 0 for ever.
@test "1+1: rank 0 is killed and mpiexec does not see it: the other rank's loader names rank 0's host" {
    local job launcher
    pictures 40
    mlp_cfg batch=20 max_batches=10000000 >mlp.cfg
    hide pics
    cluster_throttle 20mbit # a loader always waits for the next one
    cluster_job 1+1
    timeout --kill-after=5 $((200 * SLOW)) "${job[@]}" "$DARKNET" classifier train small.data mlp.cfg -cmn -cmn_seed 7 \
        -cmn_data root -cmn_cache_mb 0 -cmn_validate 0 -cmn_communicator flat >job.out 2>job.err 3>&- &
    started=$!
    wait_for 'watchdogs that have heard each other' heard || { cat job.err; return 1; }
    launcher=$(cluster_run ps -A -o pid=,comm= | awk '$2 ~ /^(mpiexec|mpirun|orterun|prterun)$/ { print $1 }')
    # shellcheck disable=SC2086  # several, where one has started another
    cluster_run kill -STOP $launcher
    cluster_run kill -KILL "$(pid_of 0)"
    wait_for 'the end of rank 1' ended 1 || { cluster_left; cat job.err; return 1; }
    # shellcheck disable=SC2086
    cluster_run kill -CONT $launcher
    wait_for 'what rank 1 said' grep -aqs 'cmn\[rank 1@node2\]' job.err || { cat job.err; return 1; }
    cat job.err
    grep -aE '^cmn\[rank 1@node2\].*the connection to node1, which serves it, ' job.err
}
