#!/usr/bin/env bats
# Convolutions by oneDNN (make ONEDNN=1), by a program that `make tests` builds beside the one without.

load helpers

setup() {
    enter_folder
    small_data 400 10
    ONEDNN=$BUILD/onednn/bin/darknet
    [[ -e $ONEDNN ]] || ONEDNN=$DARKNET
}

# All that convolutions have: sizes 3 and 1, stride, groups, with and without batch normalisation. One process has four
# micro-batches a step, whose weights are reordered once; of three ranks only one has two of them.
net_cfg() {
    net_section batch=24 subdivisions=4 cmn_batch=global learning_rate=.02
    printf '%s\n' '[convolutional]' batch_normalize=1 filters=16 size=3 stride=1 pad=1 activation=leaky '[maxpool]' size=2 stride=2 \
        '[convolutional]' filters=16 size=1 stride=1 activation=leaky \
        '[convolutional]' groups=2 filters=16 size=3 stride=2 pad=1 activation=relu \
        '[convolutional]' batch_normalize=1 filters=32 size=3 stride=1 pad=1 activation=leaky \
        '[convolutional]' filters=10 size=1 stride=1 activation=linear '[avgpool]' '[softmax]'
}

@test "20 iterations: 1, 2 and 3 ranks end within 1e-6 of each other, and within 1e-4 of OpenBLAS" {
    export OPENBLAS_NUM_THREADS=1
    net_cfg >net.cfg
    train_on 1 net.cfg
    mv "out/net$FINAL.weights" openblas.weights
    DARKNET=$ONEDNN
    for n in 1 2 3; do
        train_on $n net.cfg
        mv "out/net$FINAL.weights" $n.weights
    done
    assert_close 1.weights 2.weights 1e-6
    assert_close 1.weights 3.weights 1e-6
    assert_close 2.weights 3.weights 1e-6
    assert_close openblas.weights 1.weights 1e-4
    if [[ $ONEDNN == "$BUILD"/onednn/* ]]; then
        assert_far openblas.weights 1.weights 1e-12 # oneDNN has computed
    fi
}
