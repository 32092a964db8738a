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
    detect_on 1
    mv out/net_final.weights one.weights
    for keys in '-cmn_communicator shm -cmn_overlap on -cmn_bucket_mb 0.01' '-cmn_overlap off -cmn_sync_bn on' '-cmn_communicator naive'; do
        # shellcheck disable=SC2086  # keys and their values
        detect_on 2+2 $keys
        grep '^cmn: 4 ranks on 2 nodes' train.log
        assert_close one.weights out/net_final.weights 1e-6
    done
    # The comparison can tell.
    detect_on 2+2 -cmn_compress topk
    assert_far one.weights out/net_final.weights 1e-9
}
