#!/usr/bin/env bats
# shellcheck disable=SC2030,SC2031  # tests are functions that shellcheck takes for subshells
# AlexeyAB's Darknet on several nodes: the weights of one rank.

load helpers
load ../cli/alexeyab

setup_file() {
    alexeyab_tree
    nodes 2
}
teardown_file() { cluster_down; }

setup() {
    alexeyab_program
    enter_cluster
    boxes 100
}

@test "AlexeyAB's tree: after 20 iterations with mosaic 2+2 ranks have the weights of one, whichever way gradients take" {
    needs_mosaic
    tiny saturation=1.5 exposure=1.5 hue=.1 mosaic=1 ema_alpha=0.998 >net.cfg
    detected one 1
    for keys in '-cmn_communicator shm -cmn_overlap on' '-cmn_overlap off -cmn_sync_bn on' '-cmn_communicator naive'; do
        # shellcheck disable=SC2086  # keys and their values
        CMN_DEBUG_BUCKET_MB=0.01 detect_on 2+2 $keys
        grep '^cmn: 4 ranks on 2 nodes' train.log
        assert_close one.weights out/net_final.weights 1e-6
    done
    # The comparison can tell.
    detect_on 2+2 -cmn_compress powersgd
    assert_far one.weights out/net_final.weights 1e-9
}

@test "docs/use/alexeyab.md: its commands look at the data, try two machines and train, and the same one continues" {
    local words
    tiny max_batches=3 >net.cfg
    detect_on 1
    run -0 "$DARKNET" partial net.cfg out/net_final.weights yolov4-tiny.conv.29 5
    # auto could choose another communicator at the second start.
    tiny max_batches=6 cmn_communicator=hierarchical >yolo-obj.cfg
    mv digits.data obj.data
    sed -i 1,20d train.list # those of valid.list
    printf 'node%d slots=2\n' 1 2 >hosts
    mkdir bin
    ln -s "$DARKNET" bin/darknet-alexeyab
    ln -s "${DARKNET%/*}/cmn-run" bin/cmn-run
    awk '/^```sh by=tests\/hosts\/alexeyab.bats/ { inside = 1; next } /^```/ { inside = 0 } inside' "$REPO/docs/use/alexeyab.md" |
        sed 's/-cmn_checkpoint 100/-cmn_checkpoint 2/' >commands.sh
    [[ $(wc -l <commands.sh) -eq 3 ]]
    cluster_words bash -eo pipefail commands.sh
    run timeout "$HANG_LIMIT" "${words[@]}"
    echo "$output"
    [[ $status -eq 0 ]]
    grep -E 'good: 4 ranks can train together' <<<"$output"
    grep -E '^cmn: 4 ranks on 2 nodes' <<<"$output"
    [[ $(seen out/yolo-obj_final.weights) -eq $((6 * 24)) ]]
    cp out/yolo-obj_final.weights first.weights
    rm out/yolo-obj-6.checkpoint
    run timeout "$HANG_LIMIT" "${words[@]}"
    echo "$output"
    [[ $status -eq 0 ]]
    grep 'resumed from out/yolo-obj-4.checkpoint' <<<"$output"
    cmp first.weights out/yolo-obj_final.weights
}

scatter=(-cmn_data scatter -cmn_cache_dir cache)

# pictures_on_node1: net.cfg on 1+1 ranks has the same weights whether node2 has the images or not.
pictures_on_node1() {
    rm -f out/*
    detected shared 1+1
    mkdir -p empty cache
    cluster_differs node2 d empty
    cluster_differs node2 "$REPO/data/mnist" empty
    run -1 detect_on 1+1
    for order in shard global; do
        rm -rf cache/*
        detect_on 1+1 "${scatter[@]}" -cmn_scatter "$order"
    done
    detect_on 1+1 "${scatter[@]}"
    cluster_agree
    grep '^cmn: cmn_data=scatter: the other hosts have all of' train.log
    cmp shared.weights out/net_final.weights
}

@test "AlexeyAB's tree: cmn_data=scatter: images and labels come from rank 0's host, with the weights of local files" {
    local key mosaic=()
    [[ $ALEXEYAB_BUILD != *-opencv* ]] || mosaic=(saturation=1.5 mosaic=1)
    tiny batch=12 subdivisions=3 max_batches=3 "${mosaic[@]}" >net.cfg
    rm d/3.txt # an image without labels is one without boxes there
    pictures_on_node1
    # mAP and validation, and a list of which node2 has nothing.
    mkdir lists
    mv valid.list lists
    sed -i 's,^valid=.*,valid=lists/valid.list,' digits.data
    for key in '-cmn_validate 0 -map' '-cmn_validate 1'; do
        cluster_differs node2 d empty
        cluster_differs node2 "$REPO/data/mnist" empty
        cluster_differs node2 lists empty
        rm -f out/*
        # shellcheck disable=SC2086  # keys and their values
        darknet_on 1+1 detector train digits.data net.cfg -dont_show -cmn -cmn_seed 7 $key "${scatter[@]}" >train.log 2>&1 ||
            { tail -n 30 train.log; false; }
        cluster_agree
    done
}

@test "AlexeyAB's tree: cmn_data=scatter of a classifier: the weights of local files, and an image that is nowhere is named" {
    small_data 120 20
    net_section channels=3 batch=60 max_batches=4 cmn_batch=global >net.cfg
    printf '%s\n' '[convolutional]' filters=10 size=3 stride=2 pad=1 activation=leaky '[avgpool]' '[softmax]' >>net.cfg
    train=(classifier train small.data net.cfg -cmn -cmn_seed 7 -cmn_validate 0)
    darknet_on 1+1 "${train[@]}" >train.log 2>&1 || { tail -n 30 train.log; false; }
    mv out/net_final.weights shared.weights
    mkdir empty cache
    cluster_differs node2 "$REPO/data/mnist" empty
    darknet_on 1+1 "${train[@]}" "${scatter[@]}" >train.log 2>&1 || { tail -n 30 train.log; false; }
    cmp shared.weights out/net_final.weights
    sed 's,^mnist/,gone/,' train.list >gone.list
    mv gone.list train.list
    run -1 darknet_on 1+1 "${train[@]}" "${scatter[@]}"
    grep -E "gone/.*cannot be sent from rank 0's host: No such file or directory" <<<"$output"
}
