# shellcheck shell=bash disable=SC2154  # UPSTREAM's users load helpers first
# Trainings with Darknet as upstream has it, without a patch, as the measure of those with -cmn: tests/cli/upstream.bats on
# one node, tests/hosts/training.bats on two. `make tests` builds it.
#
# Upstream draws images and mirrors them at random, so the list is one image many times, the same from left to right.

UPSTREAM=$REPO/build/unpatched/darknet

# mirror_image FILE: 12 by 12 points with three channels, which is what upstream's trainer loads always.
mirror_image() {
    printf 'P6 12 12 255\n' >"$1"
    awk 'BEGIN { for (y = 0; y < 12; y++) for (x = 0; x < 12; x++) for (c = 0; c < 3; c++) {
        at = x < 6 ? x : 11 - x; printf "%c", 33 + (y * 37 + at * 53 + c * 29 + y * at * 7) % 94 } }' >>"$1"
}

# mixed_layers KEY=VALUE... >FILE: each kind of layer that upstream trains right on the CPU; momentum, decay, burn_in, steps.
mixed_layers() {
    net_section batch=12 subdivisions=2 height=12 width=12 channels=3 min_crop=12 max_crop=12 learning_rate=.1 burn_in=3 \
        policy=steps steps=6,9 scales=.5,.1 max_batches=12 "$@"
    printf '%s\n' '[convolutional]' "${norm[@]}" filters=6 size=3 stride=1 pad=1 activation=tanh '[maxpool]' size=2 stride=2 \
        '[convolutional]' "${norm[@]}" filters=6 size=3 stride=1 pad=1 activation=logistic '[shortcut]' from=-2 activation=linear \
        '[convolutional]' filters=4 size=3 stride=2 pad=1 activation=leaky '[upsample]' stride=2 '[route]' layers=-1,-3 \
        '[connected]' output=20 activation=logistic '[connected]' output=10 activation=linear '[softmax]'
}

# upstream_trains: net.cfg and start.weights, and upstream.weights, which it makes of them. [convolutional] has the lines of
# the array norm, too.
upstream_trains() {
    mkdir -p out
    mirror_image digit-3.png
    printf 'digit-3.png\n%.0s' {1..400} >train.list
    printf 'digit-%d\n' 0 1 2 3 4 5 6 7 8 9 >labels.txt
    printf '%s\n' classes=10 train=train.list labels=labels.txt backup=out >small.data
    mixed_layers learning_rate=1e-12 max_batches=1 >start.cfg
    mixed_layers >net.cfg
    sed -i '/^cmn_batch/d' start.cfg net.cfg
    trained start 1 start.cfg
    timeout "$HANG_LIMIT" "$UPSTREAM" classifier train small.data net.cfg start.weights -clear >upstream.log 2>&1 ||
        { cat upstream.log; return 1; }
    mv "out/net$FINAL.weights" upstream.weights
    cp start.weights moved.weights # with the number of images that net.weights has seen
    printf '\220' | dd of=moved.weights bs=1 seek=12 conv=notrunc status=none
    assert_far moved.weights upstream.weights 0.1
}

# as_upstream RANKS ARGUMENTS...: -cmn makes the weights that upstream made.
as_upstream() {
    train_on "$1" net.cfg start.weights -clear -cmn_batch global "${@:2}"
    assert_close upstream.weights "out/net$FINAL.weights" 1e-6
    rm "out/net$FINAL.weights"
}
