#!/usr/bin/env bats
# Every command that trains: N ranks compute what one rank computes, each sample once an epoch. And every command that does
# not: it says so.

load helpers
load drivers

IMAGES=24

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return 1
    [[ -f $REPO/data/mnist/train.list ]] || return 0 # setup skips
    small_data $IMAGES 1
    make_data
}

setup() {
    [[ -f $REPO/data/mnist/train.list ]] || skip 'data/mnist is missing: make mnist'
    enter_folder
    cp -a "$BATS_FILE_TMPDIR"/. .
}

# run_on N ARGUMENTS...: a training with seed 7 and cmn_batch=global, unless the arguments say otherwise.
run_on() {
    rm -f out/*.weights
    darknet_on "$1" "$2" "$3" -cmn -cmn_seed 7 -cmn_batch global "${@:4}" >train.log 2>&1 || { tail -n 40 train.log; return 1; }
}

LIMIT=1e-6

# same SEEN CFG ARGUMENTS...: 2 ranks train to the weights of one; all have seen as many images, and print the same
# loss in their last line.
same() {
    local count=$1 cfg=$2 loss
    shift 2
    run_on 1 "$@"
    mv "$(result "$cfg")" one.weights
    loss=$(sed -nE 's/^[0-9]+(, [0-9.]+)?: ([0-9.]+), .* avg, .*/\2/p' train.log | tail -n 1)
    [[ $(seen one.weights) -eq $count ]]
    run_on 2 "$@"
    grep -q '^cmn: 2 ranks' train.log
    assert_close one.weights "$(result "$cfg")" $LIMIT
    sed -nE 's/^[0-9]+(, [0-9.]+)?: ([0-9.]+), .* avg, .*/\2/p' train.log | tail -n 1 |
        awk -v one="$loss" '{ print "loss", $1, one; exit !(one > 0 && $1 / one < 1.0001 && $1 / one > .9999) }'
}

@test "detector train: [yolo], with subdivisions and an agreed random rate" {
    yolo_cfg subdivisions=2 policy=random power=.5 >yolo.cfg
    same 120 yolo detector train data.data yolo.cfg -cmn_verify 1
}

@test "detector train: [region], which learns on the CPU, too" {
    region_cfg >region.cfg
    same 120 region detector train data.data region.cfg
    region_cfg learning_rate=1e-9 >region.cfg
    run_on 1 detector train data.data region.cfg
    assert_far one.weights out/region_final.weights 0.01
}

@test "detector train: cmn_batch=per_rank, and cmn_epochs" {
    yolo_cfg learning_rate=.001 >yolo.cfg
    run_on 1 detector train data.data yolo.cfg
    mv out/yolo_final.weights one.weights
    yolo_cfg learning_rate=.001 batch=4 max_batches=1000 >yolo.cfg
    darknet_on 3 detector train data.data yolo.cfg -cmn -cmn_seed 7 -cmn_epochs 5
    assert_close one.weights out/yolo_final.weights $LIMIT
}

@test "yolo train, coco train" {
    grid_cfg >grid.cfg
    same 120 grid yolo train grid.cfg -data data.data
    mv one.weights yolo.weights
    same 120 grid coco train grid.cfg -data data.data
    cmp yolo.weights one.weights
}

@test "regressor train" {
    end_cfg 2 linear '[cost]' type=sse >regressor.cfg
    same 120 regressor regressor train numbers.data regressor.cfg
}

@test "tag train" {
    end_cfg 8 logistic '[cost]' type=sse >tag.cfg
    same 120 tag tag train tag.cfg -data tags.data
}

@test "segmenter train" {
    mask_cfg 80 '[logistic]' >segmenter.cfg
    same 120 segmenter segmenter train data.data segmenter.cfg
}

@test "isegmenter train" {
    mask_cfg 84 '[iseg]' classes=80 ids=4 >isegmenter.cfg
    same 120 isegmenter isegmenter train data.data isegmenter.cfg
}

@test "super train" {
    net width=7 height=7 >super.cfg
    conv 48 1 linear >>super.cfg
    printf '%s\n' '[reorg]' stride=4 reverse=1 '[cost]' type=sse >>super.cfg
    same 120 super super train super.cfg -data data.data
}

@test "cifar train, cifar distill; an epoch is all images of the files" {
    make_cifar
    end_cfg 10 linear '[softmax]' >cifar.cfg
    same 120 cifar cifar train cifar.cfg -data cifar.data
    mv one.weights train.weights
    same 120 cifar cifar distill cifar.cfg -data cifar.data
    assert_far train.weights one.weights 1e-4
    run_on 2 cifar train cifar.cfg -data cifar.data -cmn_epochs 3
    [[ $(seen out/cifar.weights) -eq 72 && -s out/cifar_3.weights && ! -e out/cifar_4.weights ]]
}

@test "cifar: ranks save after the same step, also where an epoch ends within one" {
    make_cifar
    {
        net batch=9 subdivisions=3 # 24 images are two steps and two micro-batches
        conv 6 2
        printf '%s\n' batch_normalize=1 '[connected]' output=10 activation=linear '[softmax]'
    } >cifar.cfg
    for verb in train distill; do
        for n in 1 2; do
            run_on $n cifar $verb cifar.cfg -data cifar.data -cmn_exact on -cmn_timeout 20
            [[ -s out/cifar_1.weights ]]
            mkdir $verb-$n
            mv out/*.weights $verb-$n
        done
        diff -r $verb-1 $verb-2
    done
}

@test "detector train: each image once an epoch, over all ranks" {
    [[ -z $SAN ]] || skip 'a program that is checked takes no preloaded library'
    printf '%s\n' '#define _GNU_SOURCE' '#include <dlfcn.h>' '#include <stdio.h>' '#include <stdlib.h>' '#include <string.h>' \
        'FILE *fopen(const char *path, const char *mode) {' \
        'FILE *(*next)(const char *, const char *), *f; char line[4200], name[64];' \
        '*(void **)&next = dlsym(RTLD_NEXT, "fopen");' \
        'if (strstr(path, "/labels/")) {' \
        'snprintf(name, sizeof name, "opened.%s", getenv("OMPI_COMM_WORLD_RANK"));' \
        'if ((f = next(name, "a"))) { setvbuf(f, line, _IOLBF, sizeof line); fprintf(f, "%s\n", path); fclose(f); } }' \
        'return next(path, mode); }' >opened.c
    "$CC" -shared -fPIC -o opened.so opened.c -ldl
    net max_batches=4 >random.cfg
    { conv 4 4 && conv 6 4 && conv 14 2 linear && yolo jitter=.2 random=1; } >>random.cfg
    # A preload list is split at spaces, so the library is named from here.
    # shellcheck disable=SC2154  # mpiexec: helpers.bash
    "${mpiexec[@]}" -n 3 -x LD_LIBRARY_PATH=. -x "LD_PRELOAD=opened.so:${LD_PRELOAD:-}" "$DARKNET" detector train data.data random.cfg -cmn -cmn_seed 7 \
        -cmn_batch global
    # 4 images a rank and step, 2 steps an epoch, 2 epochs. Those of the first step are loaded twice: it is resized; those of
    # a step after the last follow.
    for rank in 0 1 2; do
        diff <(head -n 4 opened.$rank | sort) <(sed -n 5,8p opened.$rank | sort)
        sed -i 1,4d opened.$rank
    done
    for epoch in 1 2; do
        for rank in 0 1 2; do
            head -n $((epoch * 8)) opened.$rank | tail -n 8
        done | sort >epoch.txt
        diff <(sed 's/images/labels/; s/png/txt/' data.list | sort) epoch.txt
    done
    run -1 diff <(head -n 8 opened.0) <(head -n 16 opened.0 | tail -n 8)
}

@test "flip=0: a picture looks the same each time it is loaded" {
    sed -i '2,$d' labels/*.txt # the order of boxes is drawn, too, and counts where they share a cell
    net batch=24 flip=0 hue=0 saturation=1 exposure=1 max_batches=1 >plain.cfg
    { conv 6 2 && conv 8 2 && conv 14 2 linear && yolo jitter=0; } >>plain.cfg
    sed 's/flip=0/flip=1/' plain.cfg >mirrored.cfg
    run_on 1 detector train data.data plain.cfg
    mv out/plain_final.weights first.weights
    for cfg in plain mirrored; do
        for seed in 1 2; do
            run_on 1 detector train data.data $cfg.cfg first.weights -clear -cmn_seed $seed
            mv out/${cfg}_final.weights $cfg$seed.weights
        done
    done
    assert_close plain1.weights plain2.weights $LIMIT
    assert_far mirrored1.weights mirrored2.weights $LIMIT
}

@test "every command that is no training or validation refuses -cmn, and says what to do" {
    "$DARKNET" cmn list -tsv | awk -F '\t' '$1 == "commands" && $3 == "refused" { print $2 }' \
        >refused.txt
    [[ $(wc -l <refused.txt) -ge 15 ]]
    # Each waits for MPI more than it computes.
    mapfile -t lines <refused.txt
    pids=()
    for n in 0 1 2 3; do
        mkdir side$n
        (
            cd side$n || exit 1
            for ((i = n; i < ${#lines[@]}; i += 4)); do
                read -r driver verb <<<"${lines[i]}"
                fails_clearly "-cmn does not work with $driver.*: .*(without -cmn|use )" \
                    "$DARKNET" "$driver" "${verb/\*/xyzzy}" some.cfg -cmn </dev/null || exit 1
            done
        ) >side$n.log 2>&1 3>&- &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do
        wait "$pid" || { cat side?.log && false; }
    done
}

@test "every command that trains with -cmn is tested here" {
    "$DARKNET" cmn list -tsv | awk -F '\t' '$1 == "commands" && $3 == "trains" { print $2 }' |
        grep -v '^classifier ' >trains.txt
    cat trains.txt
    while read -r driver verb; do
        grep -q "^ *same .* $driver $verb " "$BATS_TEST_DIRNAME/drivers.bats"
    done <trains.txt
    [[ $(wc -l <trains.txt) -eq 10 ]]
}

# bad FILE PATTERN ARGUMENTS...: with stdin as this file a training says so; the file is put back.
bad() {
    local file=$1 pattern=$2
    shift 2
    mv "$file" good
    cat >"$file"
    fails_clearly_on 1 "$pattern" "$@" -cmn
    mv good "$file"
}

@test "bad labels, numbers, tags and masks: one line" {
    yolo_cfg >yolo.cfg
    grid_cfg >grid.cfg
    mask_cfg 80 '[logistic]' >mask.cfg
    end_cfg 2 linear '[cost]' type=sse >numbers.cfg
    end_cfg 8 logistic '[cost]' type=sse >tag.cfg
    detector=(detector train data.data yolo.cfg)
    bad labels/07.txt '07.txt:1: class 2, and with classes=2 they are 0 to 1' "${detector[@]}" <<<'2 .5 .5 .3 .3'
    bad labels/07.txt '07.txt:2: not a class and four numbers: 0 .5 .5 .3$' "${detector[@]}" <<<$'1 .5 .5 .3 .3\n0 .5 .5 .3'
    bad labels/07.txt '07.txt:1: .*no comma' yolo train grid.cfg -data data.data <<<'0 0,5 0,5 0,3 0,3'
    bad labels/07.txt 'box without a place, or outside of its image' "${detector[@]}" <<<'1 0 0 .3 .3'
    bad labels/07.txt '07.txt:1: class -1' yolo train grid.cfg -data data.data <<<'-1 .5 .5 .3 .3'
    bad labels/07.txt '07.txt: a box lies outside of its image' yolo train grid.cfg -data data.data <<<'0 0 0 .3 .3'
    bad numbers/labels/07.txt '07.txt: number 2 of 2 is missing' regressor train numbers.data numbers.cfg <<<'.5'
    for line in -1 '1 dog 3' '7 8' 4294967297; do
        bad tags/labels/07.txt '07.txt: a tag is a number from 0 to 7' tag train tag.cfg -data tags.data <<<"$line"
    done
    mv tags/labels/07.txt good
    mkdir tags/labels/07.txt
    fails_clearly_on 1 '07.txt cannot be read' tag train tag.cfg -data tags.data -cmn
    rmdir tags/labels/07.txt
    bad mask/07.txt '07.txt: a mask has more pixels than its image' segmenter train data.data mask.cfg <<<'1 700,85'
    for line in '1 .5 .5 .3 .3' '1 3;4' '1' '1 0.2 0.3 0.5' 'x 3,4' '1 3,4 5' '5,3,4'; do
        bad mask/07.txt "07.txt: not a class and the lengths of a mask, with commas between them: $line" segmenter train data.data mask.cfg <<<"$line"
    done
    for line in '.5 .2 .1' '.5 1,5' '1 .5 .5 .3 .3'; do
        bad numbers/labels/07.txt '07.txt: more than 2 numbers' regressor train numbers.data numbers.cfg <<<"$line"
    done
    bad numbers/labels/07.txt '07.txt: number 2 of 2 is missing' regressor train numbers.data numbers.cfg <<<'0,5 0,2'
    bad mask/07.txt '07.txt: class 80, but there are 80 classes' segmenter train data.data mask.cfg <<<'80 1,1'
    rm labels/07.txt
    fails_clearly_on 2 'labels/07.txt: no label file for .*images/07.png; create an empty one' "${detector[@]}" -cmn
}

@test "boxes in pixels, or without area, are told once on a rank, with a file; the training takes the others" {
    yolo_cfg >yolo.cfg
    mkdir good
    cp labels/* good/
    for box in '1 .5 .5 0 .3' '1 300 200 120 80'; do
        sed -i "1i $box" labels/*.txt
        # Without -cmn Darknet leaves them out and says nothing.
        "$DARKNET" detector train data.data yolo.cfg >plain.log 2>&1
        run -1 grep 'box 1' plain.log
        darknet_on 2 detector train data.data yolo.cfg -cmn >train.log 2>&1
        cat train.log
        times=$(grep -c 'darknet cmn doctor' train.log)
        [[ $times == 1 || ($times == 2 && $(grep -c '^cmn: rank 1@.*darknet cmn doctor' train.log) == 1) ]]
        read -r _ x y w h <<<"$box"
        grep -qE "^cmn: (rank 1@[^ ]* )?[^ ]*labels/[0-9]+.txt: box 1, 0?$w x 0?$h around 0?$x, 0?$y: " train.log
        cp good/* labels/
    done
    darknet_on 1 detector train data.data yolo.cfg -cmn >train.log 2>&1
    run -1 grep 'darknet cmn doctor' train.log
}

@test "a cfg, text or binary file that does not fit its trainer: one line" {
    yolo_cfg >yolo.cfg
    grid_cfg >grid.cfg
    mask_cfg 80 '[logistic]' >mask.cfg
    fails_clearly_on 1 '\[detection\] is the last layer, and detector train needs one of \[yolo\]' detector train data.data grid.cfg -cmn
    fails_clearly_on 1 '\[yolo\] is the last layer, and yolo train needs one of \[detection\]' yolo train yolo.cfg -data data.data -cmn
    fails_clearly_on 1 '\[logistic\] is the last layer, and isegmenter train needs one of \[iseg\]' isegmenter train data.data mask.cfg -cmn
    { net && conv 80 3 linear; } >third.cfg
    fails_clearly_on 1 'must divide both sides' segmenter train data.data third.cfg -cmn
    make_cifar
    end_cfg 10 linear '[softmax]' >cifar.cfg
    bad cifar1.bin 'cifar1.bin: 5 bytes are no CIFAR-10 images' cifar train cifar.cfg -data cifar.data <<<'1234'
    bad cifar1.bin 'cifar1.bin: image 2 is of class 65' cifar train cifar.cfg -data cifar.data \
        < <(head -c 3073 cifar2.bin && head -c 3073 /dev/zero | tr '\0' A)
    printf '%s\n' train=/nowhere/list backup=out >nowhere.data
    fails_clearly_on 1 "Couldn't open file: /nowhere/list" yolo train grid.cfg -data nowhere.data -cmn
}
