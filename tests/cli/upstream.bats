#!/usr/bin/env bats
# shellcheck disable=SC2034  # norm: upstream.bash
# -cmn against Darknet without any of our patches: the same start, the same weights.

load helpers
load upstream

setup() {
    enter_folder
}

@test "1, 2, 3 and 5 ranks train to the weights of unpatched Darknet" {
    norm=()
    upstream_trains
    for n in 1 2 3 5; do
        as_upstream $n
    done
    as_upstream 3 -cmn_communicator flat
}

# Its ranks have the variance of fewer images each where they do not share it, and these differ.
@test "with batch normalisation and cmn_sync_bn, too; without it they differ" {
    norm=(batch_normalize=1)
    upstream_trains
    as_upstream 1
    for n in 2 5; do
        as_upstream $n -cmn_sync_bn 1
    done
    train_on 3 net.cfg start.weights -clear -cmn_batch global
    assert_far upstream.weights out/net.weights 2e-5
}
