#!/usr/bin/env bats
# shellcheck disable=SC2034  # norm: upstream.bash
# -cmn against Darknet without any of our patches: the same start, the same weights.

load helpers
load upstream

setup() {
    enter_folder
}

@test "1, 2 and 5 ranks train to the weights of unpatched Darknet" {
    norm=()
    upstream_trains
    as_upstream 1
    as_upstream 5
    as_upstream 2 -cmn_communicator flat
}

@test "with batch normalisation and cmn_sync_bn, too" {
    norm=(batch_normalize=1)
    upstream_trains
    as_upstream 1
    as_upstream 3 -cmn_sync_bn 1
}
