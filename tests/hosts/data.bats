#!/usr/bin/env bats
# shellcheck disable=SC2154  # variables of helpers.bash
# cmn_data=scatter: images and labels lie on rank 0's host, and the other hosts get copies.

load helpers
load ../cli/upstream

setup_file() { nodes 3; }
teardown_file() { cluster_down; }

setup() {
    enter_cluster
    small_data 300 60
    mlp_cfg cmn_communicator=flat batch=60 max_batches=10 >mlp.cfg
}

teardown() { end_all; }

# hide FOLDER: nothing of it is on the other nodes from here on, each of which has a cache folder of its own, cache2 and cache3.
hide() {
    mkdir -p empty cache cache2 cache3
    cluster_differs node2 "$1" empty
    cluster_differs node3 "$1" empty
    cluster_differs node2 cache cache2
    cluster_differs node3 cache cache3
}

hide_images() { hide mnist; }

scatter=(-cmn_data scatter -cmn_cache_dir cache)

# copies CACHE: the files that have arrived there. incoming CACHE: parts of files.
copies() { find "$1" -type f -path '*/??/*'; }
incoming() { find "$1" -name '*.part'; }

# nothing COMMAND...: it succeeds, and prints nothing.
nothing() {
    run -0 "$@"
    [[ -z $output ]]
}

# Of 300 images; rank 1 of 2 has 150 of them with shard, rank 2 of 3 has 100, and ranks 3 and 4 of 5 have 120.
@test "1+1, 2+1, 3+2: the bits of local files; a host gets each image once, with shard only those that its ranks train" {
    local shape order n
    local -A part=([1+1]=150 [2+1]=100 [3+2]=120)
    for shape in 1+1 2+1 3+2; do
        for order in global shard; do
            rm -rf out/* cache*
            cluster_agree
            trained shared "$shape" mlp.cfg -cmn_scatter "$order"
            hide_images
            train_on "$shape" mlp.cfg -cmn_scatter "$order" "${scatter[@]}"
            cmp shared.weights "out/mlp$FINAL.weights"
            n=300
            [[ $order != shard ]] || n=${part[$shape]}
            grep -E "^cmn: cmn_data=scatter: sends $n of 300 files, 0\.[0-9] MB, to the other hosts" train.log
            [[ $(copies cache2 | wc -l) -eq $n ]]
            nothing copies cache
            nothing incoming cache2
        done
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
    rm -f out/*
    sent=$(cluster_payload node1)
    train_on 1+1+1 mlp.cfg "$@"
    sent=$(($(cluster_payload node1) - sent))
}

# pictures_sent ARGUMENTS...: sets pictures, what left rank 0's host for images: the rest leaves it with local files, too. The
# weights are equal. Each host has the cache that it had.
pictures_sent() {
    local rest
    cluster_agree
    sent_by "$@"
    rest=$sent
    mv "out/mlp$FINAL.weights" shared.weights
    hide pics
    sent_by "$@" "${scatter[@]}"
    cmp shared.weights "out/mlp$FINAL.weights"
    pictures=$((sent - rest))
    echo "$*: $sent bytes left node1, $rest with local files: $((1000 * pictures / set)) thousandths of the set"
}

@test "1+1+1: bytes at the interface: each image leaves rank 0's host once for all hosts, and none at the second start" {
    pictures 60
    mlp_cfg cmn_communicator=flat batch=20 max_batches=3 >mlp.cfg
    # Each rank has a third of the images: two thirds leave node1.
    pictures_sent -cmn_scatter shard
    ((pictures > 66 * set / 100 && pictures < 70 * set / 100))
    [[ $(copies cache2 | wc -l) -eq 20 && $(copies cache3 | wc -l) -eq 20 ]]
    # The other images, of which a host has lacked 40.
    pictures_sent
    ((pictures > 99 * set / 100 && pictures < 104 * set / 100))
    pictures_sent
    grep '^cmn: cmn_data=scatter: the other hosts have all of 60 files' train.log
    ((pictures < set / 50))
}

@test "1+1+1: two hosts share the cache folder" {
    pictures 60
    mlp_cfg cmn_communicator=flat batch=20 max_batches=3 >mlp.cfg
    trained shared 1+1+1 mlp.cfg
    mkdir empty cache
    cluster_differs node2 pics empty
    cluster_differs node3 pics empty
    train_on 1+1+1 mlp.cfg "${scatter[@]}"
    cmp shared.weights "out/mlp$FINAL.weights"
    [[ $(copies cache | wc -l) -eq 60 ]]
    nothing incoming cache
}

# some_copies: node2 has received some files.
some_copies() { [[ $(copies cache2 | wc -l) -gt 0 ]]; }

# begun RANK: it runs; sets pid.
begun() {
    pid=$(pid_of "$1") && [[ -n $pid ]]
}

@test "1+1: a host is killed while it receives: its files are whole, and the next start sends those that it lacks" {
    local job n pid status=0
    pictures 120
    mlp_cfg cmn_communicator=flat batch=20 max_batches=6 >mlp.cfg
    trained shared 1+1 mlp.cfg
    hide pics
    cluster_throttle 10mbit
    cluster_job 1+1
    timeout --kill-after=5 $((200 * SLOW)) "${job[@]}" "$DARKNET" classifier train small.data mlp.cfg -cmn -cmn_seed 7 -cmn_validate 0 \
        "${scatter[@]}" >job.log 2>&1 3>&- &
    started=$!
    wait_for 'rank 1' begun 1 || { cat job.log; return 1; }
    wait_for 'files on node2' some_copies || { cat job.log; return 1; }
    cluster_run kill -KILL "$pid"
    wait "$started" || status=$?
    cat job.log
    mpiexec_failed "$status"
    n=$(copies cache2 | wc -l)
    ((n < 120))
    copies cache2 | xargs cat | wc -c | grep -x $((n * set / 120))
    cluster_throttle 1gbit
    train_on 1+1 mlp.cfg "${scatter[@]}"
    grep -E "^cmn: cmn_data=scatter: sends $((120 - n)) of 120 files" train.log
    cmp shared.weights "out/mlp$FINAL.weights"
    [[ $(copies cache2 | wc -l) -eq 120 ]]
    nothing incoming cache2
}

# 14 MB take 7 s, and the watchdog looks for ranks that make no progress for 3 s.
@test "1+1: a transfer over a slow link is not a stall" {
    pictures 120
    mlp_cfg cmn_communicator=flat batch=20 max_batches=1 >mlp.cfg
    hide pics
    cluster_throttle 15mbit
    train_on 1+1 mlp.cfg "${scatter[@]}" -cmn_timeout 3
    cluster_throttle 1gbit
    cat train.log
    grep -E '^cmn: cmn_data=scatter: sent in ([6-9]|[1-9][0-9]+)\.[0-9] s$' train.log
}

# disk OPTIONS: node2's cache folder is a file system of its own.
disk() {
    hide pics
    cluster_run mount -t tmpfs -o "$1" none "$PWD/cache2"
}

# on_disk COMMAND...: beside the nodes, where that file system is seen.
copies_on_disk() { cluster_run find "$PWD/cache2" -type f -path '*/??/*'; }

@test "1+1: a host with 10 MB free: one line before anything is sent; where other files come in between, the next start continues" {
    local n
    pictures 100
    mlp_cfg cmn_communicator=flat batch=20 max_batches=5 >mlp.cfg
    trained shared 1+1 mlp.cfg
    disk size=10m
    run -1 darknet_on 1+1 classifier train small.data mlp.cfg -cmn -cmn_seed 7 -cmn_validate 0 "${scatter[@]}"
    echo "$output" | tee said.txt
    [[ $(own_lines said.txt | grep -c 'rank 1@node2') -eq 1 ]]
    grep -E 'rank 1@node2.*cmn_cache_dir: cache/darknet-node1-[0-9a-f]{16}: its disk has 10\.[0-9] MB free, and 12\.[0-9] MB of' <<<"$output"
    nothing copies_on_disk
    cluster_run umount "$PWD/cache2"
    # There is room for all bytes, and for 298 files and folders: 257 are folders.
    cluster_run mount -t tmpfs -o size=100m,nr_inodes=300 none "$PWD/cache2"
    run -1 darknet_on 1+1 classifier train small.data mlp.cfg -cmn -cmn_seed 7 -cmn_validate 0 "${scatter[@]}"
    echo "$output"
    grep -E 'rank 1@node2.*cmn_cache_dir: cache/darknet-[^ ]*: No space left on device while 12\.[0-9] MB' <<<"$output"
    n=$(copies_on_disk | wc -l)
    ((n > 20 && n < 60))
    cluster_run find "$PWD/cache2" -name '*.part' | wc -l | grep -x 0
    cluster_run mount -o remount,nr_inodes=2000 "$PWD/cache2"
    train_on 1+1 mlp.cfg "${scatter[@]}"
    cluster_run umount "$PWD/cache2"
    grep -E "^cmn: cmn_data=scatter: sends $((100 - n)) of 100 files" train.log
    cmp shared.weights "out/mlp$FINAL.weights"
}

@test "1+1: a file that changes between two starts is an error where a training is resumed, and sent again where not" {
    local file=pics/7.digit-7.ppm
    pictures 20
    mlp_cfg cmn_communicator=flat batch=20 max_batches=6 cmn_checkpoint=2 >mlp.cfg
    hide pics
    trained first 1+1 mlp.cfg "${scatter[@]}"
    cp -p "$file" former.ppm
    # The same bytes with another time: sent, and no error.
    rm out/mlp-6.checkpoint
    touch "$file"
    train_on 1+1 mlp.cfg "${scatter[@]}"
    grep 'resumed from out/mlp-4.checkpoint' train.log
    grep '^cmn: cmn_data=scatter: sends 1 of 20 files' train.log
    cmp first.weights "out/mlp$FINAL.weights"
    # One byte differs, as many as before.
    rm out/mlp-6.checkpoint
    printf x | dd of="$file" bs=1 seek=5000 conv=notrunc status=none
    run -1 darknet_on 1+1 classifier train small.data mlp.cfg -cmn -cmn_seed 7 -cmn_validate 0 "${scatter[@]}"
    echo "$output" | tee said.txt
    [[ $(own_lines said.txt | grep -c 'rank 1@node2') -eq 1 ]]
    grep "rank 1@node2.*$file has changed on rank 0's host since this host received it" <<<"$output"
    nothing incoming cache2
    cp -p former.ppm "$file"
    touch "$file"
    train_on 1+1 mlp.cfg "${scatter[@]}"
    cmp first.weights "out/mlp$FINAL.weights"
    # A training that begins takes the file as it is.
    { printf 'P6 200 200 255\n' && head -c 120000 /dev/urandom; } >"$file"
    train_on 1+1 mlp.cfg "${scatter[@]}" -clear
    grep '^cmn: cmn_data=scatter: sends 1 of 20 files' train.log
    mv "out/mlp$FINAL.weights" scattered.weights
    run -1 cmp first.weights scattered.weights
    cluster_agree
    train_on 1+1 mlp.cfg -clear
    cmp scattered.weights "out/mlp$FINAL.weights"
}

@test "1+1: a validation reads the images of rank 0's host, those of a list's first line with a byte order mark, too" {
    sed -i $'1s/^/\xef\xbb\xbf/' train.list valid.list
    hide_images
    darknet_on 1+1 classifier train small.data mlp.cfg -cmn -cmn_seed 7 "${scatter[@]}" >train.log 2>&1 || { cat train.log; false; }
    grep -E 'accuracy' train.log
}

@test "1+1: a path may be as long as one of a local file, with blanks and other letters than ASCII" {
    local path
    path=deep$(printf '/%0200d' {1..18})
    mkdir -p "$path" && path+='/ ö 世界.digit-5.png'
    cp "$(head -n 1 train.list)" "$path"
    for ((i = 0; i < 120; i++)); do echo "$path"; done >train.list
    hide deep
    train_on 1+1 mlp.cfg "${scatter[@]}"
}

@test "1+1: an image that is nowhere is named" {
    mkdir gone cache
    sed 's|mnist/|gone/|' train.list >gone.list
    cp gone.list train.list
    run -1 darknet_on 1+1 classifier train small.data mlp.cfg -cmn -cmn_seed 7 "${scatter[@]}" -cmn_validate 0
    echo "$output"
    grep -E "rank 0@node1.*gone/.*, which a list of images names, cannot be sent from rank 0's host: No such file or directory$" <<<"$output"
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
    hide images
    hide labels
    hide mnist
    run -1 darknet_on 1+1 "${train[@]}"
    grep -E 'rank 1@node2\].*data/(images|labels)/' <<<"$output"
    darknet_on 1+1 "${train[@]}" "${scatter[@]}" >root.log 2>&1 || { cat root.log; false; }
    cmp shared.weights out/yolo_final.weights
    rm labels/05.txt out/*
    run -1 darknet_on 1+1 "${train[@]}" "${scatter[@]}"
    grep -E 'data/labels/05.txt: no label file for data/images/05.png; create an empty one' <<<"$output"
}
