#!/usr/bin/env bats
# Layers and rules of update that few nets use: N ranks compute what one rank computes.

load helpers

setup() {
    enter_folder
    small_data 120 20
}

# layers_cfg KEY=VALUE... >FILE: one of each type that learns, but for batch norm, whose statistics are a rank's own.
layers_cfg() {
    net_section batch=30 max_batches=6 decay=0.01 "$@"
    printf '%s\n' '[convolutional]' 'filters=4' 'size=5' 'stride=3' 'activation=tanh' \
        '[local]' 'filters=2' 'size=3' 'stride=2' 'pad=1' 'activation=tanh' \
        '[deconvolutional]' 'filters=2' 'size=2' 'stride=2' 'activation=tanh' \
        '[connected]' 'output=10' 'activation=linear' '[softmax]'
}

# same_as_one_rank RANKS KEY=VALUE...
same_as_one_rank() {
    layers_cfg "${@:2}" >layers.cfg
    trained one 1 layers.cfg -cmn_batch global
    train_on "$1" layers.cfg -cmn_batch global
    assert_close one.weights out/layers.weights 1e-5
}

@test 'momentum: 3 ranks train each type of layer as one does' {
    same_as_one_rank 3
}

@test 'adam=1: 2 ranks train each type of layer as one does, and with double buffering' {
    same_as_one_rank 2 adam=1 learning_rate=0.002
    mv one.weights adam.weights
    # Rounded gradients change little; the rule of momentum would.
    train_on 2 layers.cfg -cmn_batch global -cmn_communicator flat -cmn_compress bf16
    assert_close adam.weights out/layers.weights 0.05
    layers_cfg learning_rate=0.002 >layers.cfg
    train_on 1 layers.cfg -cmn_batch global
    assert_far adam.weights out/layers.weights 0.05
    same_as_one_rank 2 adam=1 learning_rate=0.002 cmn_double_buffering=1 cmn_communicator=flat
    assert_far adam.weights one.weights 1e-3
}

# refuses WHAT WHY LINE...: a training, an evaluation and the doctor refuse the net of these lines, with KEYS in [net], in the
# same words.
refuses() {
    local what=$1 why=$2 number
    shift 2
    # shellcheck disable=SC2086  # several words
    { net_section ${KEYS:-}; printf '%s\n' "$@" '[connected]' output=10 activation=linear '[softmax]'; } >bad.cfg
    number=$(grep -nxF -- "$what" bad.cfg | cut -d: -f1)
    what=${what//[/\\[}
    fails_clearly_on 2 "bad.cfg:$number: $what: $why" classifier train small.data bad.cfg -cmn
    fails_clearly "bad.cfg:$number: $what: $why" "$DARKNET" classifier valid small.data bad.cfg none.weights -cmn
    ! "$DARKNET" cmn doctor small.data bad.cfg >doctor.txt || return 1
    grep -x 'fault: 1 layer or key is refused with -cmn' doctor.txt
    grep -x "  bad.cfg:$number: $what: $why" doctor.txt
}

# tests/unit/config/refused_layers.c has all of them.
@test 'layers and keys that -cmn does not repair are refused by name, in a training, an evaluation and by the doctor' {
    local instead='remove it, or use one process, without -cmn'
    refuses '[lrn]' "this Darknet's gradient of it is wrong; $instead" '[lrn]'
    refuses xnor=1 "this Darknet computes it in different ways on the CPU and on GPUs; $instead" '[conv]' size=3 filters=2 xnor=1
    KEYS=time_steps=2 refuses time_steps=2 "-cmn trains no sequences, which only layers with a state need; $instead"
}

@test 'rnn train is refused' {
    fails_clearly '-cmn does not work with rnn train: -cmn trains no layer that keeps a state between steps' "$DARKNET" rnn train \
        rnn.cfg -file text -cmn
}

# refused PATTERN LINE...: why the net of these lines, with KEYS in [net], is not trained.
refused() {
    local pattern=$1
    shift
    # shellcheck disable=SC2086  # several words
    { net_section ${KEYS:-}; printf '%s\n' "$@" '[softmax]'; } >bad.cfg
    fails_clearly_on 1 "$pattern" classifier train small.data bad.cfg -cmn
}

@test 'nets whose gradient has no way back are refused when they are read' {
    local conv=('[convolutional]' 'filters=8' 'size=3' 'stride=1' 'pad=1' 'activation=tanh')
    local half=('[convolutional]' 'filters=8' 'size=3' 'stride=2' 'pad=1' 'activation=tanh')
    local crop=('[crop]' 'crop_height=24' 'crop_width=24' 'flip=0' 'angle=0' 'saturation=1' 'exposure=1' 'shift=0')
    refused '\[crop\] must be the first layer' "${conv[@]}" "${crop[@]}"
    refused 'alpha must be 1 unless' "${conv[@]}" "${half[@]}" '[shortcut]' 'from=-2' 'alpha=0.5' 'activation=linear'
    KEYS='height=10 width=24' refused 'adds layer 0 of 24 x 10 pixels to 6 x 3' "${conv[@]}" "${half[@]/stride=2/stride=4}" \
        '[shortcut]' 'from=-2' 'activation=linear'
    refused 'stride=4 needs a multiple of 16 channels, and there are 8' "${conv[@]}" '[reorg]' 'stride=4'
    refused 'stride=3 does not divide 28 x 28' "${conv[@]}" '[convolutional]' 'filters=9' 'size=1' 'stride=1' \
        'activation=tanh' '[reorg]' 'stride=3'
    refused 'stride=-3 does not divide 28 x 28' "${conv[@]}" '[upsample]' 'stride=-3'
}

@test 'a layer without weights behind a crop layer is no crash' {
    { net_section max_batches=2; printf '%s\n' '[crop]' 'crop_height=24' 'crop_width=24' '[maxpool]' 'size=2' 'stride=2' \
        '[connected]' 'output=10' 'activation=linear' '[softmax]'; } >crop.cfg
    train_on 2 crop.cfg
    [[ -f out/crop.weights ]]
}

@test 'a softmax with a tree of classes learns: what the tree leaves open is no truth' {
    for i in {0..9}; do
        echo "digit-$i $((i < 5 ? -1 : i - 5))"
    done >digits.tree
    echo 'tree=digits.tree' >>small.data
    mlp_cfg max_batches=40 batch=20 | sed 's/^\[softmax\]/&\ntree=digits.tree/' >tree.cfg
    trained one 1 tree.cfg -cmn_batch global -cmn_report_every 1
    jq -r '.[]["main/loss"]' out/tree.json | paste -sd ' ' | tee losses
    awk '{ exit !($1 > 0 && $1 < 100 && $NF > 0 && $NF < .8 * $1) }' losses
    train_on 2 tree.cfg -cmn_batch global
    assert_close one.weights out/tree.weights 1e-6
    # Rank 0's tree, whichever file lies on other hosts.
    mv out/tree.weights two.weights
    mkdir other
    ln -s "$PWD"/* other/
    rm other/digits.tree other/other
    sed 's/ [0-9]*$/ -1/' digits.tree >other/digits.tree
    # shellcheck disable=SC2016,SC2154  # expanded by the inner shell; of the helpers
    timeout "$HANG_LIMIT" "${mpiexec[@]}" -n 2 sh -c '[ "$OMPI_COMM_WORLD_RANK" != 1 ] || cd other; exec "$@"' - "$DARKNET" classifier train \
        small.data tree.cfg -cmn -cmn_seed 7 -cmn_validate 0 -cmn_batch global >train.log 2>&1
    assert_close two.weights out/tree.weights 1e-6
}
