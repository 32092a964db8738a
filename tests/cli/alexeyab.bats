#!/usr/bin/env bats
# shellcheck disable=SC2030,SC2031,SC2153,SC2154  # mpiexec, otherwise: helpers.bash; DARKNET, STOCK: alexeyab.bash
# AlexeyAB's Darknet: its tree is patched, and trains on several ranks to what one rank makes (docs/use/alexeyab.md).

load helpers
load alexeyab

@test "AlexeyAB's tree: built without a warning from the module; parts that are missing and patches that do not fit are named" {
    grep -q -e -Werror "$ALEXEYAB_BUILD/flags-cmn"
    cp -r "$ALEXEYAB_TREE" tree
    chmod -R u+w tree
    sed -i 's/l.backward(l, state);/l.backward (l, state);/' tree/src/network.c
    run env DARKNET_TREE="$PWD/tree" "$REPO/darknet/obtain.sh" --patches "$REPO/patches/alexeyab" new
    [[ $status -ne 0 && ${lines[-1]} == *'patches/alexeyab/hooks/step.patch does not apply to DARKNET_TREE='*'commit 59596d78'* && ! -e new ]]
    rm -r tree/3rdparty
    run env DARKNET_TREE="$PWD/tree" "$REPO/darknet/obtain.sh" --patches "$REPO/patches/alexeyab" new
    [[ $status -ne 0 && $output == *'no folder 3rdparty/stb/include'* ]]
}

@test "AlexeyAB's tree: without -cmn the patched one computes the bits of the unpatched one" {
    boxes 1
    gcc -std=c11 -shared -fPIC "$REPO/tests/patches/fixed_time.c" -o time.so
    # Loader threads race for rand() in both; with one image and no augmentation nothing depends on that.
    tiny max_batches=4 learning_rate=0.0001 flip=0 | sed 's/jitter=.1/jitter=0/; s/resize=1.5/resize=1/' >net.cfg
    made=()
    for darknet in "$STOCK" "$DARKNET"; do
        LD_PRELOAD=./time.so "$darknet" detector train digits.data net.cfg -dont_show >train.log 2>&1 || { tail train.log; false; }
        mv out/net_final.weights "made-by-${#made[@]}.weights"
        made+=("$darknet")
    done
    cmp made-by-0.weights made-by-1.weights
}

@test "AlexeyAB's tree: 2 and 3 ranks have the weights of one, with mosaic, mish, CIoU, EMA and cmn_sync_bn" {
    local with=()
    boxes 100
    [[ $ALEXEYAB_BUILD != *-opencv* ]] || with=(mosaic=1)
    tiny saturation=1.5 exposure=1.5 hue=.1 ema_alpha=0.998 learning_rate=0.0001 max_batches=5 "${with[@]}" >net.cfg
    one_and_three
    [[ $(seen 3.weights) -eq 120 ]]
    detect_on 2 -cmn_sync_bn on
    assert_close 1.weights out/net_final.weights 1e-6
    detect_on 2
    assert_close 1.weights out/net_final.weights 1e-6
}

@test "AlexeyAB's tree: a training that was ended and resumed has the same bits; 3 ranks continue from the checkpoint of 2" {
    export CMN_DEBUG_CHECKPOINT_KEEP=99
    boxes 100
    echo savelast=2 >>digits.data
    # The average begins behind half of the iterations, between the two checkpoints.
    tiny batch=12 ema_alpha=0.9 learning_rate=0.0001 max_batches=8 >net.cfg
    detected whole 2 -cmn_checkpoint 3
    mv out/net_ema.weights whole-ema.weights
    assert_far whole.weights whole-ema.weights 1e-6
    rm out/net-8.checkpoint
    cp -r out three
    for at in 6 3; do
        rm -f out/net_final.weights out/net_ema.weights
        find out -name '*.checkpoint' ! -name "net-$at.checkpoint" -delete
        detect_on 2 -cmn_checkpoint 3
        grep -q "resumed from out/net-$at.checkpoint" train.log
        cmp whole.weights out/net_final.weights
        cmp whole-ema.weights out/net_ema.weights
        rm -r out
        cp -r three out
    done
    detect_on 3 -cmn_checkpoint 3
    assert_close whole.weights out/net_final.weights 1e-6
}

@test "AlexeyAB's tree: -map on 2 ranks saves the best weights, and the unpatched tree finds the same mAP in them, as does detector map on 3" {
    boxes 60
    tiny width=64 height=64 max_batches=60 batch=8 subdivisions=2 learning_rate=0.001 burn_in=10 cmn_ema=.9 >net.cfg
    detect_on 2 -map -cmn_validate 0 # of the average of the weights
    assert_far out/net_final.weights out/net_ema.weights 1e-4
    map=$(sed -n 's/.*mean_average_precision (mAP@0.50) = \([0-9.]*\).*/\1/p' train.log | tail -n 1)
    "$STOCK" detector map digits.data net.cfg out/net_best.weights >map.log 2>&1 || true
    echo "mAP $map"
    grep -a 'mAP@0.50' map.log
    awk -v map="$map" 'BEGIN { exit !(map > 0) }'
    grep -aq "(mAP@0.50) = $map," map.log
    # All of what it says, for a list that 3 ranks cannot divide evenly.
    figures() { tr '\r' '\n' | grep -aE 'detections_count|class_id|conf_thresh|mAP@'; }
    figures <map.log >stock.map
    [[ $(wc -l <stock.map) -eq 14 ]]
    darknet_on 3 detector map digits.data net.cfg out/net_best.weights -cmn 2>cmn.log | figures | diff - stock.map || { cat cmn.log; false; }
}

@test "AlexeyAB's tree: classifier valid, detector valid and recall on several ranks say what one process says" {
    boxes 60
    # Three classes: one more is too much for eval=kitti.
    sed -i 's/^[0-9]/2/' d/*.txt
    seq 3 >names
    sed -i 's/^classes=.*/classes=3/' digits.data
    tiny max_batches=2 learning_rate=0.0001 | sed 's/classes=10/classes=3/; s/filters=30/filters=16/' >net.cfg
    detected w 1
    for eval in 'voc 1 3' 'coco 2' 'bdd 2' 'kitti 2'; do
        read -ra ranks <<<"${eval#* }"
        eval=${eval%% *}
        sed -i '/^eval/d' digits.data
        echo "eval=$eval" >>digits.data
        mkdir results
        # It closes that file twice.
        "$STOCK" detector valid digits.data net.cfg w.weights >valid.log 2>&1 || [[ $? -eq 134 && $eval == bdd ]]
        mv results stock
        [[ $(find stock -type f -size +100c | wc -l) -ge 1 ]]
        for n in "${ranks[@]}"; do
            mkdir results
            darknet_on "$n" detector valid digits.data net.cfg w.weights -cmn >valid.log 2>&1 || { tail valid.log; false; }
            diff -r stock results
            rm -r results
        done
        rm -r stock
    done
    "$STOCK" detector recall digits.data net.cfg w.weights 2>&1 | grep Recall >stock.recall
    [[ $(wc -l <stock.recall) -eq 20 ]]
    darknet_on 3 detector recall digits.data net.cfg w.weights -cmn 2>&1 | grep Recall | diff - stock.recall
    small_data 60 20
    net_section channels=3 batch=20 max_batches=3 learning_rate=0.01 >net.cfg
    printf '%s\n' '[convolutional]' batch_normalize=1 filters=8 size=3 stride=2 pad=1 activation=leaky '[avgpool]' \
        '[convolutional]' filters=10 size=1 stride=1 pad=1 activation=linear '[softmax]' groups=1 >>net.cfg
    train_on 1 net.cfg -dont_show
    stock=$("$STOCK" classifier valid small.data net.cfg out/net_final.weights 2>/dev/null | tail -n 1)
    [[ $stock == '19: top 1: '* ]]
    darknet_on 3 classifier valid small.data net.cfg out/net_final.weights -cmn 2>valid.log | grep -xF "20${stock#19}" || { tail valid.log; false; }
}

@test "AlexeyAB's tree: what an evaluation or -map would end with late is said before it begins, on each rank" {
    boxes 24
    tiny batch=4 subdivisions=2 max_batches=2 >net.cfg
    detected w 1
    # says LINE ARGUMENTS...: the job ends with this line, and no other one of ranks.
    says() {
        run -1 darknet_on 2 "${@:2}" -dont_show -cmn
        echo "$output"
        [[ $(grep -ac '^cmn\[' <<<"$output") -eq 1 && $output == *"] $1"* && $output != *'avg loss'* && ! -e out/net_final.weights ]]
    }
    train=(detector train digits.data net.cfg)
    seq 0 8 >names
    says '-map: names has 9 names for classes=10 in the cfg: it needs one line for each class' "${train[@]}" -map
    says 'names has 9 names for classes=10: add the missing ones' detector map digits.data net.cfg w.weights
    says 'names has 9 names for classes=10: add the missing ones' detector valid digits.data net.cfg w.weights
    seq 0 9 >names
    says 'Couldn'\''t open file: results/comp4_det_test_0.txt (No such file or directory): make its folder' detector valid digits.data net.cfg w.weights
    cp -L d/5.png d/wrong.png
    echo '10 .5 .5 .6 .8' >d/wrong.txt
    echo d/wrong.png >>valid.list
    wrong='d/wrong.txt:1: class 10, and with classes=10 they are 0 to 9'
    says "$wrong" "${train[@]}"
    says "$wrong" "${train[@]}" -map -cmn_validate 0
    says "$wrong" detector map digits.data net.cfg w.weights
    sed -i '$d' valid.list
    # All of them are in tests/unit/data/labels.c.
    label='1 .2 .2 .5 .2 .5 .5 .2 .5'
    cp d/5.txt kept.txt
    echo "$label" >d/5.txt
    says "d/5.txt:1: not a class and four numbers: $label (a polygon? " "${train[@]}"
    says "d/5.txt:1: not a class and four numbers: $label (a polygon? " detector map digits.data net.cfg w.weights
    cp kept.txt d/5.txt
    sed -i.kept 's/^[0-9]*/-1/' d/*.txt
    run -1 darknet_on 2 "${train[@]}" -cmn_validate 0 -dont_show -cmn
    [[ $output == *'.txt:1: class -1, and with classes=10 they are 0 to 9'* ]]
    for kept in d/*.kept; do
        mv "$kept" "${kept%.kept}"
    done
    sed -i '/^valid/d' digits.data
    detect_on 2 -map -cmn_validate 0
    grep 'cmn: -map: digits.data names no valid= list: the mAP is that of the training list train.list' train.log
    rm out/net_final.weights
    small_data 24 4
    says 'small.data:1: classes=10, and the network of net.cfg has 480 outputs' classifier valid small.data net.cfg w.weights
    for eval in 'kitti in the .data file is for at most 3 classes' 'imagenet in the .data file is for at least 200 classes'; do
        sed "\$a eval=${eval%% *}" digits.data >eval.data
        says "eval=$eval, and the network has 10" detector valid eval.data net.cfg w.weights
    done
    seq 9999 >labels.txt
    sed -i 's/classes=10/classes=9999/' small.data
    says "net.cfg:$(grep -n '^classes' net.cfg | cut -d : -f 1): classes=10, and small.data:1 says classes=9999" classifier valid small.data net.cfg w.weights
}

@test "AlexeyAB's tree: what it would train or judge without a word is told, or refused" {
    boxes 24
    tiny max_batches=2 >net.cfg
    detected w 1
    # Weights of another network, and none.
    sed 's/^filters=16/filters=8/' net.cfg >narrow.cfg
    sed -i 's/^max=.*//' narrow.cfg
    darknet_on 2 detector train digits.data narrow.cfg w.weights -dont_show -cmn -clear >train.log 2>&1
    [[ $(grep -c "^cmn: w.weights has more values than the network of the cfg" train.log) -eq 1 ]]
    run -1 darknet_on 1 detector map digits.data narrow.cfg w.weights -dont_show -cmn
    [[ $output == *'w.weights has more values than the network of the cfg'* ]]
    head -c 20 w.weights >head.weights
    run -1 darknet_on 1 detector map digits.data net.cfg head.weights -dont_show -cmn
    [[ $output == *'head.weights has fewer values than the network of the cfg'* ]]
    run -1 darknet_on 1 detector map digits.data net.cfg -dont_show -cmn
    [[ $output == *'detector map needs weights: darknet detector map DATA CFG WEIGHTS -cmn'* ]]
    # Label files: none, too many boxes, a name that leads to none.
    rm d/*.txt
    mkdir bad.list # as in a folder where nothing may be written
    detect_on 1 -clear
    grep -E '^cmn.* d/[0-9]+.txt: no label file: its image counts as one without objects' train.log
    for i in {0..23}; do for _ in {1..201}; do echo '1 .5 .5 .6 .8'; done >"d/$i.txt"; done
    detect_on 1 -clear
    grep -E '^cmn.* d/[0-9]+.txt: 201 boxes; training takes 200 of them' train.log
    # A wrong box, in a folder whose name is long, and would be a command in a shell.
    # shellcheck disable=SC2016  # a shell is not to see it
    long=$(printf '%0240d$(touch hit)' 0)
    mkdir "$long" && cp d/0.png "$long" && echo '1 5 5 .1 .1' >"$long/0.txt"
    cp train.list whole.list && sed -i "s|.*|$long/0.png|" train.list
    detect_on 1 -clear
    [[ ! -e hit ]]
    grep -F "$long/0.txt Wrong annotation: x = 0 or y = 0" bad_label.list
    mv whole.list train.list
    for i in {0..23}; do mv "d/$i.png" "d/$i.jfif"; done
    sed -i 's/png$/jfif/' train.list
    run -1 darknet_on 1 detector train digits.data net.cfg -dont_show -cmn -clear -cmn_validate 0
    [[ $output == *'.jfif: the name leads to no label file: names of images end with .jpg, .jpeg, .png'* ]]
    # A list that no line names is divided, too.
    mkdir data
    sed -i 's/jfif$/png/' train.list
    for i in {0..23}; do mv "d/$i.jfif" "d/$i.png"; done
    mv train.list data/train.txt
    sed -i '/^train=/d' digits.data
    detect_on 2 -clear -cmn_epochs 1
    grep -F 'data/train.txt' train.log
    [[ $(jq '.[-1].iteration' out/net.json) -eq 1 ]]
    # A classifier whose images have none of the labels.
    small_data 24 4
    sed -i 's/digit/figure/' labels.txt
    { net_section channels=3 width=28 height=28 batch=4 max_batches=2; printf '%s\n' '[convolutional]' filters=10 size=1 stride=1 activation=linear '[avgpool]' '[softmax]'; } >c.cfg
    run -1 darknet_on 1 classifier train small.data c.cfg -dont_show -cmn -cmn_validate 0
    [[ $output == *'No label matches mnist/train/'*': one of labels= must be a part of each path'* ]]
}

@test "AlexeyAB's tree: cmn_patience: the same best weights and the same last iteration after a resume, also with -map" {
    export CMN_DEBUG_CHECKPOINT_KEEP=99
    boxes 24
    tiny max_batches=400 batch=8 subdivisions=2 learning_rate=0.001 burn_in=10 cmn_patience=3 >net.cfg
    detect_on 2 -map -cmn_validate 2 -cmn_checkpoint 5
    ended='cmn_patience=3: no better mAP@0.5 than [0-9.e-]*, of iteration ([0-9]+), in the last 3 validations: the training ends after iteration ([0-9]+),'
    [[ $(<train.log) =~ $ended ]]
    end=${BASH_REMATCH[2]}
    echo "best ${BASH_REMATCH[1]}, last $end"
    ((end == BASH_REMATCH[1] + 18 && end < 400)) # 3 validations: each epoch has 3 iterations, and every second one is validated
    [[ $(seen out/net_final.weights) == $((end * 8)) ]]
    [[ $(seen out/net_best.weights) == $((BASH_REMATCH[1] * 8)) ]]
    cp -r out whole
    at=$((RANDOM % (end / 5 - 1) * 5 + 5))
    find out -name '*.checkpoint' ! -name "net-$at.checkpoint" -delete
    # A checkpoint is a weights file, too.
    darknet_on 2 detector map digits.data net.cfg "out/net-$at.checkpoint" -dont_show -cmn 2>&1 | tr '\r' '\n' | grep -a 'mAP@0.50'
    detect_on 2 -cmn_validate 2 -cmn_checkpoint 5
    grep "resumed from out/net-$at.checkpoint" train.log
    cmp whole/net_best.weights out/net_best.weights
    cmp whole/net_final.weights out/net_final.weights
}

@test "AlexeyAB's tree: with random=1 a training has the same bits with validations, which resize its network, and without" {
    boxes 24
    tiny width=64 height=64 max_batches=6 batch=8 subdivisions=2 ema_alpha=0.998 | sed 's/random=0/random=1/' >net.cfg
    detected plain 2
    detect_on 2 -cmn_validate 1
    [[ $(grep -cE '^ *[0-9.]+ +[0-9]+ +[0-9.]+ +[0-9.]+ ' train.log) -ge 2 ]]
    cmp plain.weights out/net_final.weights
}

@test "AlexeyAB's tree: a file with the first layers alone is read by rank 0, and all ranks begin with it" {
    boxes 60
    tiny max_batches=1 >net.cfg
    detect_on 1
    "$DARKNET" partial net.cfg out/net_final.weights first.conv.3 3 >partial.log 2>&1
    tiny max_batches=2 learning_rate=0 >net.cfg
    # shellcheck disable=SC2016  # the other shell expands it
    rank_1_runs 'for word in "$@"; do shift; [ "$word" != first.conv.3 ] || word=none; set -- "$@" "$word"; done'
    darknet_on 1 detector train digits.data net.cfg first.conv.3 -clear -dont_show -cmn -cmn_seed 7 -cmn_validate 0 >train.log 2>&1
    mv out/net_final.weights one.weights
    timeout "$HANG_LIMIT" "${mpiexec[@]}" -n 2 "$otherwise" "$DARKNET" detector train digits.data net.cfg first.conv.3 -clear -dont_show -cmn \
        -cmn_seed 7 -cmn_validate 0 >train.log 2>&1 || { cat train.log; false; }
    assert_close one.weights out/net_final.weights 1e-6
    # The weights of the first layer are those of the file, and not new ones.
    cmp -i 276 -n 1728 first.conv.3 out/net_final.weights
}

@test "AlexeyAB's tree: weights that are no whole layers are refused, and a full disk takes no weights" {
    boxes 12
    tiny batch=6 subdivisions=2 max_batches=1 >net.cfg
    detect_on 1
    cp out/net_final.weights whole.weights
    local bytes
    bytes=$(stat -c %s whole.weights)
    head -c "$((bytes - 4))" whole.weights >cut.weights
    head -c 11 whole.weights >head.weights
    for wrong in 'cut.weights is truncated inside layer 10, or of another network' 'head.weights is too short for a weights file' \
        'd is too short for a weights file'; do
        run -1 darknet_on 1 detector train digits.data net.cfg "${wrong%% *}" -clear -dont_show -cmn -cmn_validate 0
        [[ $output == *"] $wrong"* ]]
    done
    # A device keeps its place.
    rm out/net_final.weights
    ln -s /dev/full out/net_final.weights
    run -1 detect_on 1
    [[ $output == *"Couldn't write weights to out/net_final.weights (No space left on device)"* && -c /dev/full ]]
    rm out/net_final.weights
    unshare -m mount -t tmpfs tmpfs out 2>/dev/null || skip 'this user cannot mount a small disk'
    # shellcheck disable=SC2016  # the inner shell's
    run -1 unshare -m bash -c 'mount -t tmpfs -o size="$1" tmpfs out || exit 2
        cp whole.weights out/net_final.weights || exit 3
        "${@:2}" >train.log 2>&1
        status=$?
        cmp whole.weights out/net_final.weights || exit 4
        [[ ! -e $(echo out/*.part) ]] || exit 5
        exit "$status"' \
        bash "$((bytes + 32768))" "$DARKNET" detector train digits.data net.cfg -dont_show -cmn -cmn_seed 8 -cmn_validate 0
    grep "Couldn't write weights to out/net_final.weights (No space left on device)" train.log
}

@test "both trees: weights that the other one orders in another way are refused" {
    small_data 200 50
    net_section channels=3 batch=24 subdivisions=4 max_batches=2 >net.cfg
    printf '%s\n' '[convolutional]' filters=10 size=3 stride=2 pad=1 activation=linear '[batchnorm]' '[avgpool]' '[softmax]' groups=1 >>net.cfg
    # Versions 0.2.0 and 0.2.5, no images, and room for all weights.
    { printf '\0\0\0\0\2\0\0\0\0\0\0\0' && head -c 40000 /dev/zero; } >pjreddie.weights
    { printf '\0\0\0\0\2\0\0\0\5\0\0\0' && head -c 40000 /dev/zero; } >alexeyab.weights
    refuses() {
        DARKNET=$1 run -1 darknet_on 1 classifier train small.data net.cfg "$2.weights" -cmn -cmn_validate 0
        [[ $output == *"$2.weights: $3 Darknet wrote these weights, and orders those of layer 1 (batchnorm) in another way"* ]]
    }
    refuses "$DARKNET" pjreddie "pjreddie's"
    [[ $BUILD == "$ALEXEYAB_BUILD" ]] || refuses "$BUILD/bin/darknet" alexeyab "AlexeyAB's"
    # All other layers are alike.
    sed -i '/batchnorm/d' net.cfg
    darknet_on 1 classifier train small.data net.cfg pjreddie.weights -cmn -cmn_validate 0 -dont_show >train.log 2>&1
    # With TREE=alexeyab there is no program of the other tree.
    [[ $BUILD == "$ALEXEYAB_BUILD" ]] ||
        DARKNET=$BUILD/bin/darknet darknet_on 1 classifier train small.data net.cfg alexeyab.weights -cmn -cmn_validate 0 >train.log 2>&1
}

@test "AlexeyAB's tree: a classifier with cutmix: 2 ranks have the weights of one" {
    small_data 200 50
    net_section batch=24 subdivisions=4 cmn_batch=global cutmix=1 learning_rate=0.001 channels=3 max_batches=5 >net.cfg
    printf '%s\n' '[convolutional]' batch_normalize=1 filters=8 size=3 stride=2 pad=1 activation=mish '[avgpool]' \
        '[convolutional]' filters=10 size=1 stride=1 pad=1 activation=linear '[softmax]' groups=1 >>net.cfg
    for n in 1 2; do
        train_on "$n" net.cfg -dont_show
        mv out/net_final.weights "$n.weights"
    done
    assert_close 1.weights 2.weights 1e-6
}

@test "AlexeyAB's tree: an image that is missing or broken ends the job, once and with its name" {
    small_data 24 10
    boxes 24
    tiny max_batches=2 >net.cfg
    echo 'no image' >broken.png
    ln -sf ../broken.png d/5.png
    run -1 detect_on 2
    [[ $(grep -c '^cmn\[' <<<"$output") -eq 1 && $output == *'Cannot load image "d/5.png"'* ]]
    [[ ! -e bad.list ]]
    # Its own decoder takes a cut JPEG, and makes the rest up.
    tail -c +2 "$REPO/fuzz/seeds/image/jpg-422" >broken.png
    truncate -s -20 broken.png
    run -1 detect_on 1
    [[ $(grep -c '^cmn\[' <<<"$output") -eq 1 && $output == *'Cannot load image "d/5.png": JPEG: the file ends before the last pixel'* ]]
    net_section batch=24 subdivisions=4 channels=3 >class.cfg
    printf '%s\n' '[convolutional]' filters=10 size=3 stride=1 pad=1 activation=linear '[avgpool]' '[softmax]' groups=1 >>class.cfg
    sed 's|^train=.*|train=gone.list|' small.data >gone.data
    sed 's/.*/gone-digit-1.png/' train.list >gone.list
    run -1 darknet_on 1 classifier train gone.data class.cfg -dont_show -cmn
    [[ $(grep -c '^cmn\[' <<<"$output") -eq 1 && $output == *'Cannot load image "gone-digit-1.png"'* ]]
}

@test "AlexeyAB's tree: what is wrong with a cfg is one line with file and line, in a training and in the doctor" {
    local change says
    boxes 24
    tiny >whole.cfg
    line() { grep -n -m 1 "^$1" net.cfg | cut -d : -f 1; }
    # All rows are in tests/unit/config/cfg_check.c.
    while IFS='|' read -r change key says; do
        sed "$change" whole.cfg >net.cfg
        says="net.cfg:$(line "$key"): $says"
        run -1 darknet_on 1 detector train digits.data net.cfg -dont_show -cmn
        [[ $(grep -c '^cmn\[' <<<"$output") -eq 1 && $output == *"] $says"* ]] || { echo "not: $says"; false; }
        run -1 "$DARKNET" cmn doctor digits.data net.cfg
        [[ $output == *"  $says"* ]]
    done <<'END'
s/^\[convolutional\]/[convolutinal]/|.convolutinal|[convolutinal] is no layer: this Darknet has [activation]
s/^channels=.*/channels=4/|channels|channels=4: a detector of this Darknet has images of 1 or 3 channels
s/^anchors=.*/anchors = 30,40, 40 # and no more/|anchors|1 anchor for num=2: it needs 4 numbers, a width and a height each
END
    run -1 darknet_on 1 detector train digits.data -dont_show -cmn
    [[ $output == *'detector train needs a .data file and a cfg: darknet detector train DATA CFG [WEIGHTS] -cmn'* ]]
}

@test "AlexeyAB's tree: marks, blanks and ends of lines of other systems change nothing, nor do options before the verb" {
    boxes 24
    tiny max_batches=3 >net.cfg
    list=$(sed -n 's/^train *= *//p' digits.data)
    darknet_on 2 detector train digits.data net.cfg -dont_show -cmn -cmn_seed 7 -cmn_validate 0
    mv out/net_final.weights expected
    { printf '\xef\xbb\xbf'; sed 's/$/\r/' net.cfg; } >net.new
    { printf '\n\xef\xbb\xbf' | tail -c 3; sed 's/$/\r\n/' "$list"; } >'a list.txt'
    { printf '\xef\xbb\xbf'; sed 's/^train.*/ train = a list.txt /; s/$/\r/' digits.data; } >new.data
    mv net.new net.cfg
    darknet_on 2 detector -dont_show -gpus 0 train new.data net.cfg --save-weights 2 -cmn -cmn_seed 7 -cmn_validate 0 -clear
    cmp out/net_final.weights expected
    [[ -e out/net_2.weights ]]
}

@test "AlexeyAB's tree: what ranks cannot do together is refused with the reason" {
    boxes 24
    tiny mosaic=1 ema_alpha=0.998 >net.cfg
    "$DARKNET" cmn doctor digits.data net.cfg >doctor.log 2>&1 || true
    grep '^doctor: ' doctor.log
    run -1 grep 'no effect' doctor.log
    "$DARKNET" cmn list >list.log
    grep -E '^ +detector train +trains ' list.log
    grep -E '^ +detector valid +evaluates ' list.log
    grep -E '^ +yolo train +refused ' list.log
    # It has them.
    "$DARKNET" cmn list -md elsewhere >elsewhere.log
    run -1 grep -e -map elsewhere.log
    # A rank alone refuses as many do, and the doctor as a training.
    keys=adversarial_lr
    [[ $ALEXEYAB_BUILD == *-opencv* ]] || keys+=' mosaic'
    for key in $keys; do
        tiny "$key=1" >net.cfg
        line="net.cfg:$(grep -n "^$key=1" net.cfg | cut -d : -f 1): $key=1: "
        run -1 darknet_on 1 detector train digits.data net.cfg -dont_show -cmn
        [[ $output == *"] $line"* ]]
        run -1 "$DARKNET" cmn doctor digits.data net.cfg
        [[ $output == *"  $line"* ]]
    done
    tiny >net.cfg
    run -1 darknet_on 1 detector train digits.data net.cfg -dontshow -cmn
    [[ $output == *'] unknown option -dontshow; did you mean -dont_show?'* ]]
    run -1 darknet_on 1 detector map digits.data net.cfg w.weights -thresh -dont_show -cmn
    [[ $output == *'] command line: -thresh: a number must follow it'* ]]
    tiny contrastive=1 batch=18 >net.cfg
    run -1 darknet_on 1 detector train digits.data net.cfg -dont_show -cmn
    [[ $output == *'contrastive in the cfg: '* ]]
    net_section channels=3 width=64 height=64 >net.cfg
    printf '%s\n' '[convolutional]' filters=3 size=3 stride=1 pad=1 activation=linear '[convolutional]' filters=3 size=3 stride=1 pad=1 \
        activation=linear share_index=0 '[avgpool]' '[softmax]' groups=1 >>net.cfg
    run -1 darknet_on 1 classifier train digits.data net.cfg -dont_show -cmn
    [[ $output == *"share_index=0: this Darknet updates shared weights once for each layer that has them"* ]]
    sed '/^\[convolutional\]/,$d' net.cfg >first.cfg
    printf '%s\n' '[batchnorm]' '[connected]' output=10 activation=linear '[softmax]' groups=1 >>first.cfg
    run -1 darknet_on 1 classifier train digits.data first.cfg -dont_show -cmn
    [[ $output == *'[batchnorm] as the first layer: this Darknet writes'* ]]
    run -1 darknet_on 1 classifier train digits.data net.cfg -topk -cmn
    [[ $output == *'-topk: with -cmn the answers are counted with cmn_validate'* ]]
    tiny ema_alpha=.998 cmn_ema=.9 >net.cfg
    run -1 detect_on 1
    [[ $output == *'cmn_ema=0.9 does not go with ema_alpha in the cfg: they are two averages of the weights: remove one of them'* ]]
    tiny >net.cfg
    run -1 detect_on 2 -gpus 0,1
    [[ $output == *'each rank trains on one device'* ]]
    run -1 darknet_on 1 yolo train net.cfg -cmn
    [[ $output == *"-cmn does not work with yolo train: AlexeyAB's Darknet has no hooks for it: use one process, without -cmn"* ]]
    run -1 darknet_on 1 rnn train net.cfg -cmn
    [[ $(grep -c '^cmn' <<<"$output") -eq 1 && $output == *'-cmn does not work with rnn train: '* ]]
    # Numbers with which it would not end, or read what is not there; random is a factor there.
    tiny policy=sgdr sgdr_cycle=0 | sed '/^\[yolo\]/a random=1.2\nembedding_layer=99' >net.cfg
    run -1 detect_on 1
    [[ $output == *'sgdr_cycle=0: must be 1 or more iterations'* && $output != *random=* ]]
    sed -i /^sgdr_cycle/d net.cfg
    run -1 detect_on 1
    [[ $output == *'embedding_layer=99: this is layer '*', and there is no layer 99 before it'* && $output != *random=* ]]
    { tiny resize_step=0 | sed '/^\[convolutional\]/a dilation=0'; printf '%s\n' '[contrastive]' yolo_layer=77; } >net.cfg
    run -1 "$DARKNET" cmn doctor digits.data net.cfg
    for said in 'resize_step=0: must be 1 to' 'dilation=0: must be 1 to' 'yolo_layer=77: this is layer '; do
        [[ $output == *"$said"* ]] || { echo "$said"; false; }
    done
    # All such layers and keys are in tests/unit/config/refused_layers.c.
    tiny track=1 max_batches=1 | before_last '[history]' >net.cfg
    run -1 detect_on 1
    [[ $output == *"net.cfg:"*": track=1: -cmn trains no sequences"* ]]
}
