#!/usr/bin/env bats
# shellcheck disable=SC2154  # mpiexec, otherwise: helpers.bash
# What AlexeyAB's Darknet has and pjreddie's has not: its keys and layers on 1 and 3 ranks, and cfgs of its folder cfg/.

load helpers
load alexeyab

# resumes_with_same_bits: net.cfg on 2 ranks, of which the last iterations are made again.
resumes_with_same_bits() {
    export CMN_DEBUG_CHECKPOINT_KEEP=99
    rm -rf out
    detected whole 2 -cmn_checkpoint 1
    find out -name '*.checkpoint' ! -name net-2.checkpoint -delete
    detect_on 2 -cmn_checkpoint 1
    grep -q 'resumed from out/net-2.checkpoint' train.log
    cmp whole.weights out/net_final.weights
}

@test "AlexeyAB's keys: letter_box, mixup, and with OpenCV blur and gaussian_noise: draws belong to the sample" {
    boxes 60
    tiny batch=12 subdivisions=4 height=64 letter_box=1 mixup=1 blur=1 gaussian_noise=20 max_batches=3 learning_rate=0.0001 >net.cfg
    one_and_three
    # As they are drawn for each sample, the number of loader threads changes nothing: a rank has one for each image here.
    tiny batch=12 subdivisions=4 height=64 letter_box=1 mixup=1 max_batches=3 learning_rate=0.0001 >net.cfg
    detect_on 1
    [[ $ALEXEYAB_BUILD != *-opencv* ]] || assert_far 1.weights out/net_final.weights 1e-4
}

@test "AlexeyAB's keys: antialiasing, stopbackward, Gaussian_yolo" {
    boxes 60
    # The layers before the fifth are frozen: as they are in the file.
    tiny batch=12 subdivisions=3 max_batches=3 learning_rate=0.0001 | sed 's/\[yolo\]/[Gaussian_yolo]/; s/filters=30/filters=38/' |
        awk '{ print } /^\[maxpool\]/ { print "antialiasing=1" } /^\[/ { n++ } /^\[/ && n == 6 { print "stopbackward=1" }' >net.cfg
    [[ $(grep -A 1 '^\[convolutional\]' net.cfg) == *stopbackward* ]]
    sed '/stopbackward/d; s/max_batches=3/max_batches=1/; s/learning_rate=.*/learning_rate=0/' net.cfg >first.cfg
    darknet_on 1 detector train digits.data first.cfg -dont_show -cmn -cmn_seed 7 -cmn_validate 0 >train.log 2>&1
    for n in 1 3; do
        detected "$n" "$n" out/first_final.weights -clear
    done
    assert_close 1.weights 3.weights 1e-6
    # The head, then the first layer: 4 * 16 numbers of each filter, and 16 * 27 weights.
    cmp -i 20 -n $((4 * (64 + 432))) out/first_final.weights 3.weights
    run -1 cmp -i $((20 + 4 * (64 + 432))) out/first_final.weights 3.weights
}

@test "AlexeyAB's keys: contrastive in a detector and in a classifier, as long as ranks have whole micro-batches" {
    boxes 60
    tiny batch=24 subdivisions=3 contrastive=1 max_batches=3 |
        before_last $'[convolutional]\nsize=1\nstride=1\npad=1\nfilters=16\nactivation=linear\n[route]\nlayers=-2' |
        sed 's/^\[yolo\]/&\nembedding_layer=-3\nmax_delta=5/' >net.cfg
    printf '%s\n' '[route]' layers=-4 '[contrastive]' classes=10 temperature=1 yolo_layer=-2 cls_normalizer=1 max_delta=10 >>net.cfg
    one_and_three
    # It is validated, though its last layer finds no boxes.
    detect_on 2 -cmn_validate 1
    jq -e '.[0]["validation/main/map"] > 0' out/net.json >/dev/null
    small_data 200 50
    net_section channels=3 batch=24 subdivisions=3 cmn_batch=global max_batches=3 learning_rate=.001 contrastive=1 label_smooth_eps=0.01 >net.cfg
    printf '%s\n' '[convolutional]' batch_normalize=1 filters=16 size=3 stride=2 pad=1 activation=leaky '[avgpool]' \
        '[contrastive]' classes=10 temperature=1 cls_normalizer=1 max_delta=5 '[route]' layers=-2 \
        '[convolutional]' filters=10 size=1 stride=1 pad=1 activation=linear '[softmax]' >>net.cfg
    for n in 1 3; do
        train_on "$n" net.cfg -dont_show
        mv out/net_final.weights "$n.weights"
    done
    assert_close 1.weights 3.weights 1e-6
    for how in '4' '2 -cmn_sync_bn on'; do
        # shellcheck disable=SC2086  # the number of ranks, a key and its value
        run -1 train_on ${how%% *} net.cfg -dont_show ${how#[24]}
        [[ $(grep -c '^cmn' <<<"$output") -eq 1 ]]
        [[ $output == *"compares the images of a micro-batch with each other, and ${how%% *} ranks would divide each: take at most 3 ranks"* ]]
    done
}

@test "AlexeyAB's keys: what follows the deltas: each rank follows its own, and a checkpoint has it" {
    boxes 60
    tiny batch=12 subdivisions=4 max_batches=4 learning_rate=.0001 badlabels_rejection_percentage=1 num_sigmas_reject_badlabels=3 \
        equidistant_point=1 >net.cfg
    resumes_with_same_bits
    detect_on 2 -cmn_communicator flat
    assert_close whole.weights out/net_final.weights 1e-6
}

@test "cmn_exact: 1, 3 and 5 ranks have the same bits, with mosaic, a resize, ema_alpha and clipping; also resumed on others" {
    export CMN_DEBUG_CHECKPOINT_KEEP=99
    local n with=()
    boxes 60
    [[ $ALEXEYAB_BUILD != *-opencv* ]] || with=(mosaic=1)
    echo savelast=2 >>digits.data
    tiny batch=12 subdivisions=4 max_batches=6 saturation=1.5 exposure=1.5 hue=.1 mixup=1 ema_alpha=.9 learning_rate=.0001 "${with[@]}" |
        sed 's/random=0/random=1/' >net.cfg
    for n in 1 3 5; do
        detect_on "$n" -cmn_exact on -cmn_clip 50 -cmn_verify 1 -cmn_checkpoint 2
        for what in final ema; do
            mv "out/net_$what.weights" "$n.$what"
            cmp "1.$what" "$n.$what"
        done
        jq -ce 'if length > 0 and all(has("main/loss")) then .[] else error("a row without a loss") end | [.iteration, .["main/loss"]]' out/net.json >"$n.losses"
        cmp 1.losses "$n.losses"
        mv out "$n"
        mkdir out
    done
    run -1 cmp 1.final 1.ema
    mv 3/net-4.checkpoint out
    detect_on 2 -cmn_exact on -cmn_clip 50 -cmn_checkpoint 2
    grep 'resumed from out/net-4.checkpoint' train.log
    cmp 1.final out/net_final.weights
    cmp 1.ema out/net_ema.weights
    detect_on 1 -clear -cmn_clip 50
    assert_close 1.final out/net_final.weights 1e-5
}

@test "cmn_exact: what an earlier micro-batch decides is refused" {
    boxes 60
    tiny batch=12 subdivisions=4 num_sigmas_reject_badlabels=3 >net.cfg
    refused() {
        run -1 "$DARKNET" detector train digits.data net.cfg -dont_show -cmn -cmn_exact on
        [[ $(grep -c '^cmn' <<<"$output") -eq 1 ]]
        [[ $output == *"cmn_exact=on does not go with $1"* ]]
    }
    refused 'badlabels_rejection_percentage, num_sigmas_reject_badlabels or equidistant_point: each micro-batch is trained by'
}

@test "AlexeyAB's keys: those of GPUs only are named; connected layers and the like are trained, whatever the communicator" {
    small_data 60 50
    net_section channels=3 batch=24 subdivisions=3 cmn_batch=global max_batches=3 learning_rate=.01 adam=1 >net.cfg
    printf '%s\n' '[convolutional]' batch_normalize=2 filters=4 size=3 stride=4 pad=1 activation=relu dont_update=1 \
        '[connected]' output=16 activation=relu '[connected]' output=10 activation=linear '[softmax]' >>net.cfg
    sed 's/max_batches=3/max_batches=1/; s/learning_rate=.*/learning_rate=0/' net.cfg >first.cfg
    train_on 1 first.cfg -dont_show
    for how in '1 flat' '2 shm'; do
        train_on "${how% *}" net.cfg -dont_show -cmn_communicator "${how#* }"
        mv out/net_final.weights "${how% *}.weights"
    done
    [[ $(grep -c 'net.cfg: no effect on the CPU, for this Darknet knows them only on GPUs: adam=1, batch_normalize=2, dont_update$' train.log) -eq 1 ]]
    assert_close 1.weights 2.weights 1e-6
    # The last 160 numbers are the weights of [connected].
    tail -c 640 out/first_final.weights >first
    tail -c 640 1.weights >last
    run -1 cmp first last
    # The unpatched tree divides by 0 here.
    net_section channels=3 max_batches=2 >net.cfg
    printf '%s\n' '[connected]' output=10 activation=linear '[softmax]' >>net.cfg
    train_on 2 net.cfg -dont_show
}

# thin CFG KEY=VALUE...: a cfg of the tree's folder cfg/ with an eighth of the filters, small images, and these keys of [net].
thin() {
    local cfg=$1
    shift
    printf '%s\n' '[net]' channels=3 "$@"
    # What trains on boxes has 255 or 18 filters before [yolo].
    awk -F ' *= *' '/^\[/ { part = $1; if (part != "[net]") print; next }
        part == "[net]" { next }
        /^(filters|output|hidden)/ && $2 == 1000 { print $1 "=10"; next }
        /^(filters|output|hidden)/ && $2 % 8 == 0 { print $1 "=" $2 / 8; next }
        /^groups/ && $2 == 32 { print "groups=4"; next }
        { print }' "$ALEXEYAB_TREE/cfg/$cfg.cfg"
}

@test "cfgs of AlexeyAB's folder: an iteration on 2 ranks" {
    boxes 24
    small_data 24 0
    net="momentum=0.9 decay=0.0005 max_batches=1 learning_rate=0.0001 batch=4 subdivisions=2"
    mosaic=
    [[ $ALEXEYAB_BUILD != *-opencv* ]] || mosaic=mosaic=1
    # The command, the cfg, its keys.
    for row in "detector yolov7-tiny width=64 height=64" \
        "detector yolov4 width=64 height=64 $mosaic" \
        "detector csresnext50-panet-spp-original-optimal width=64 height=64 $mosaic" \
        "classifier csdarknet53-omega width=64 height=64 cutmix=1 mosaic=1 label_smooth_eps=0.1 min_crop=64 max_crop=96"; do
        read -r command cfg keys <<<"$row"
        # shellcheck disable=SC2086  # keys and their values
        thin "$cfg" $net $keys >net.cfg
        [[ $command == detector ]] && data=digits.data || data=small.data
        [[ $command == classifier ]] || sed -i "s/^classes=.*/$(grep -m 1 '^classes' net.cfg | tr -d ' ')/" digits.data
        SECONDS=0
        darknet_on 2 "$command" train "$data" net.cfg -dont_show -cmn -cmn_seed 7 -cmn_validate 0 -cmn_verify 1 >train.log 2>&1 ||
            { echo "$cfg"; tail -n 30 train.log; false; }
        echo "$cfg: $SECONDS s"
        [[ $(seen out/net_final.weights) -eq 4 ]]
        rm out/net_final.weights
    done
}

@test "AlexeyAB's habits: rank 0 alone draws the chart and sends the stream; -clear, -dont_show" {
    needs_mosaic
    boxes 24
    tiny batch=4 subdivisions=2 max_batches=2 >net.cfg
    mkdir r1
    ln -s ../{d,out,digits.data,train.list,valid.list,names,net.cfg} r1
    rank_1_runs 'cd r1'
    # No other test has the same one, and no other program this one.
    port=$((20000 + $$ % 10000))
    while grep -qsi "^ *[0-9]*: [0-9A-F]*:$(printf %04X $port) " /proc/net/tcp /proc/net/tcp6; do port=$((port + 1)); done
    for again in '' -clear; do
        timeout "$HANG_LIMIT" "${mpiexec[@]}" -n 2 "$otherwise" "$DARKNET" detector train digits.data net.cfg ${again:+out/net_final.weights} $again -dont_show \
            -mjpeg_port $port -cmn -cmn_seed 7 -cmn_validate 0 >train.log 2>&1 || { tail -n 30 train.log; false; }
        [[ $(seen out/net_final.weights) -eq 8 ]]
        grep -a 'MJPEG-stream sent' train.log
        run -1 grep -a "couldn't bind" train.log
        [[ -s chart_net.png && ! -e r1/chart_net.png && ! -e r1/chart.png ]]
        rm chart*
    done
}
