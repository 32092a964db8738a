#!/usr/bin/env bats
# shellcheck disable=SC2030,SC2031,SC2154  # mpiexec: helpers.bash; tests are functions that shellcheck takes for subshells
# Training on GPUs, whole, over the stand-in for CUDA, its libraries and Darknet's kernels: the hooks, the choice of a GPU, the
# gradients in its memory, files, validation. On a real GPU: tests/gpu/run.sh.

load helpers

setup() {
    enter_folder
    CPU=$DARKNET
    DARKNET=$BUILD/fake/bin/darknet
    export FAKE_GPUS=5 FAKE_VARIANCE=darknet
    small_data 500 50
}

# Tanh and strides: where sums rounded otherwise flip no maximum (numbers.bats).
smooth_cfg() {
    net_section "$@"
    printf '%s\n' '[convolutional]' 'filters=6' 'size=5' 'stride=2' 'pad=1' "${extra[@]}" 'activation=tanh' \
        '[convolutional]' 'filters=8' 'size=3' 'stride=2' 'pad=1' "${extra[@]}" 'activation=tanh' \
        '[connected]' 'output=10' 'activation=linear' '[softmax]'
}

keep() {
    mv "out/$1.weights" "$2.weights"
}

# on_cpu COMMAND...: the same by the build for the CPU.
on_cpu() {
    local DARKNET=$CPU
    "$@"
}

# nvidia_smi N: a program of that name, before all others, that lists N GPUs.
nvidia_smi() {
    mkdir -p smi
    printf '%s\n' '#!/bin/sh' "for i in $(seq -s ' ' 0 $(($1 - 1))); do echo \"GPU \$i: none\"; done" >smi/nvidia-smi
    chmod +x smi/nvidia-smi
    PATH=$PWD/smi:$PATH
}

@test "tests/gpu/run.sh finds a GPU, tests, and fails where one is there and cannot be used" {
    nvidia_smi 1
    export FAKE_GPUS=1 DARKNET GPU_TEST_TMP=$PWD/gpu
    GPU_TEST_ONLY='against_the_cpu two_ranks training' run -0 "$REPO/tests/gpu/run.sh"
    echo "$output"
    [[ $(grep -c '^ok [0-9]* - [^#]*$' <<<"$output") -eq 10 && ${lines[-1]} == 1..10 ]]
    # A later run finds the way to share a GPU; one without it says what comes first.
    export GPU_TEST_ONLY=exchanges GPU_TEST_PROGRAMS=$PWD/none
    run -0 "$REPO/tests/gpu/run.sh"
    [[ $(grep -c '# SKIP it is not built' <<<"$output") -eq 2 ]]
    rm gpu/way
    run -0 "$REPO/tests/gpu/run.sh"
    [[ $(grep -c '# SKIP how NCCL shares a GPU is not known: two_ranks comes first' <<<"$output") -eq 2 ]]
    # A build for the CPU, and a limit that the weights do not keep.
    DARKNET=$CPU run -1 "$REPO/tests/gpu/run.sh"
    [[ ${lines[1]} == 'not ok 1 - training on a GPU: there is one, but '*' is a build for the CPU' ]]
    export GPU_TEST_ONLY=against_the_cpu
    sed 's/step:1e-4 .*; do/step:0; do/' "$REPO/tests/gpu/run.sh" >strict.sh
    sed -i "s|root=.*here/.*|root='$REPO'|" strict.sh
    run -1 bash strict.sh
    [[ $output == *'not ok 1 - step.cfg on a GPU gives the weights of the CPU: relative L2 '*', limit 0'* ]]
    nvidia_smi 0
    DARKNET=$CPU run -0 "$REPO/tests/gpu/run.sh"
    [[ ${lines[1]} == 'ok 1 - training on a GPU # SKIP '* ]]
}

@test "tests of the exchange fail where streams do not wait for one another" {
    # The sums, and who is named when none comes: NCCL's work then runs before Darknet's.
    run -2 env GPU_TEST_BREAK=wait timeout "$HANG_LIMIT" "${mpiexec[@]}" -n 2 "$BUILD/tests/gpu/transports/nccl"
    echo "$output"
    [[ $output == *'b.host[i] == want: at '* && $output == *'has not come to it in 1 s'* ]]
}

@test "the plan for a machine with a GPU goes on after a step that fails or hangs, and says how each ended" {
    export GPU_PLAN=$PWD/steps GPU_TEST_TMP=$PWD/gpu
    long=7177.$BASHPID # a name that no other process has
    printf '%s\n' 'passes 90 echo ok 1 - one' 'fails 90 ls /nonexistent' "hangs 1 flock $GPU_PLAN timeout $long sleep $long" 'late 90 true' >steps
    GPU_PLAN_SECONDS=900 run -1 "$REPO/tests/gpu/run.sh" out
    echo "$output"
    grep -E '^passes +90 +[0-9]+  ok$' out/log
    grep -E '^fails +90 +[0-9]+  FAILED: ls: cannot access' out/log
    grep -E '^hangs +1 +[1-9][0-9]*  NO END; last: $' out/log
    grep -E '^late +90 +[0-9]+  ok$' out/log
    grep -E '^[0-9]+ s; 4 steps, 2 of them ok$' out/log
    asleep() { pgrep -fx "sleep $long"; }
    none_asleep() { ! asleep; }
    wait_for 'the end of what hangs' none_asleep
    GPU_PLAN_SECONDS=2 run -1 "$REPO/tests/gpu/run.sh" out late
    [[ ${lines[-1]} == *'1 steps, 0 of them ok' && $output == *'not run: the 2 s are over'* ]]
    # The plan itself: ten minutes, of functions that there are.
    sed '/^#/d; s/ *#.*//' "$REPO/tests/gpu/steps" >plan
    awk '{ s += $2 } END { exit NR < 10 || s > 570 }' plan
    while read -r name _ command; do
        [[ -n $command ]] || grep -q "^$name() {" "$REPO/tests/gpu/run.sh"
    done <plan
}

# by COMMUNICATOR COMMAND...: the command with that communicator; `mpi COMMUNICATOR`: without NCCL within a node.
by() {
    local name=$1
    shift
    if [[ $name == 'mpi '* ]]; then local -x CMN_DEBUG_INTRA=mpi; fi
    # shellcheck disable=SC2086  # a name may come with a key
    "$@" -cmn_communicator ${name#mpi }
}

# The sums of each communicator: tests/gpu/communicators/exchange.c.
@test "ranks train as one on GPUs, by NCCL, and through the host in the background" {
    smooth_cfg batch=24 subdivisions=2 max_batches=6 >conv.cfg
    train_on 1 conv.cfg -cmn_batch global
    keep conv one
    while read -r ranks name; do
        by "$name" train_on "$ranks" conv.cfg -cmn_batch global -cmn_verify 1
        keep conv many
        assert_close one.weights many.weights 1e-6
    done < <(printf '%s\n' '3 hierarchical' '2 auto')
    grep -q 'communicator pure_nccl (auto: GPUs)' train.log
}

# With layers that Darknet itself updates by momentum on a GPU.
adam_cfg() {
    net_section batch=20 adam=1 learning_rate=0.001 max_batches=5
    printf '%s\n' '[convolutional]' 'filters=4' 'size=3' 'stride=2' 'pad=1' 'batch_normalize=1' 'activation=tanh' \
        '[local]' 'filters=3' 'size=3' 'stride=2' 'pad=1' 'activation=tanh' '[batchnorm]' \
        '[connected]' 'output=10' 'activation=linear' '[softmax]'
}

# as_on_cpu RANKS NET KEYS...: NET.cfg gives the CPU's weights, and the same bits after a restart. Keys before | are those of GPUs alone.
as_on_cpu() {
    local name ranks=$1 net=$2 keys="${*:3} "
    local -x CMN_DEBUG_EXCHANGE=''
    [[ $keys != *' flat | '* ]] || CMN_DEBUG_EXCHANGE=halving
    echo "# $*"
    rm -rf out
    # shellcheck disable=SC2086  # keys and their values
    on_cpu train_on "$ranks" "$net.cfg" -cmn_communicator flat ${keys#*| }
    jq -c '[.[]."main/accuracy"]' "out/$net.json" >accuracy
    for name in "$net" "${net}_ema"; do [[ ! -f out/$name.weights ]] || keep "$name" "cpu-$name"; done
    # shellcheck disable=SC2086
    train_on "$ranks" "$net.cfg" -cmn_verify 1 -cmn_checkpoint 3 ${keys/| /}
    jq -c '[.[]."main/accuracy"]' "out/$net.json" | diff accuracy -
    for name in "$net" "${net}_ema"; do
        [[ ! -f out/$name.weights ]] || { keep "$name" "gpu-$name" && assert_close "cpu-$name.weights" "gpu-$name.weights" 1e-5; }
    done
    rm "out/$net-5.checkpoint"
    cp "out/$net-3.checkpoint" three
    # shellcheck disable=SC2086
    train_on "$ranks" "$net.cfg" -cmn_verify 1 -cmn_checkpoint 3 ${keys/| /}
    grep -q "resumed from out/$net-3.checkpoint, iteration 3" train.log
    for name in "$net" "${net}_ema"; do [[ ! -f out/$name.weights ]] || cmp "gpu-$name.weights" "out/$name.weights"; done
}

# cpu_goes_on RANKS NET KEYS...: with what the GPUs of as_on_cpu have kept.
cpu_goes_on() {
    rm "out/$2-5.checkpoint"
    cp three "out/$2-3.checkpoint"
    on_cpu train_on "$1" "$2.cfg" -cmn_communicator flat -cmn_checkpoint 3 "${@:3}"
    grep -q "resumed from out/$2-3.checkpoint, iteration 3" train.log
    assert_close "gpu-$2.weights" "out/$2.weights" 1e-5
}

@test "adam on GPUs, at once or one step late, updates every layer as on the CPU, keeps an average, and resumes with the same bits" {
    adam_cfg >adam.cfg
    as_on_cpu 2 adam -cmn_clip 0.5 -cmn_nonfinite skip
    as_on_cpu 2 adam -cmn_double_buffering 1 -cmn_ema 0.8
    assert_far gpu-adam.weights gpu-adam_ema.weights 1e-4
    cpu_goes_on 2 adam -cmn_double_buffering 1 -cmn_ema 0.8
}

# LARS, clipping, steps that are left out, local steps and powersgd: tests/gpu/optimizers/policies.c.
@test "averages, 16 bits and batch normalisation work on GPUs as on the CPU, and resume with the same bits" {
    # Small tensors travel exactly.
    ACTIVATION=tanh mlp_cfg batch=20 max_batches=5 >mlp.cfg
    as_on_cpu 2 mlp -cmn_communicator flat '|' -cmn_compress bf16
    # Statistics too, which are averaged before they are saved.
    extra=('batch_normalize=1')
    smooth_cfg batch=20 max_batches=5 >norm.cfg
    as_on_cpu 2 norm -cmn_communicator single_node '|' -cmn_double_buffering 1 -cmn_ema 0.8
    assert_far gpu-norm.weights gpu-norm_ema.weights 1e-5
    cpu_goes_on 2 norm -cmn_double_buffering 1 -cmn_ema 0.8
    grep 'the checkpoint was written by communicator single_node, or on other nodes' train.log
}

@test "reorg and dropout pass on on a GPU what they do on the CPU" {
    # What reads before reorg, too, has given its gradient there first.
    net_section batch=20 max_batches=2 >reorg.cfg
    printf '%s\n' '[convolutional]' filters=4 size=3 stride=2 pad=1 activation=tanh '[reorg]' stride=2 \
        '[route]' layers=0 '[convolutional]' filters=4 size=3 stride=2 pad=1 activation=tanh '[route]' layers=-1,1 \
        '[connected]' output=10 activation=linear '[softmax]' >>reorg.cfg
    on_cpu train_on 1 reorg.cfg
    keep reorg cpu
    train_on 1 reorg.cfg
    assert_close cpu.weights out/reorg.weights 1e-5
    # Dropout follows from the seed, and changes its input, which is the output of the layer before, or a copy of it.
    for run in ' 7' '[activation] 7' ' 8'; do
        read -r seed between <<<"${run##* } ${run% *}"
        net_section batch=20 max_batches=2 >drop.cfg
        # shellcheck disable=SC2086  # a layer or none
        printf '%s\n' '[connected]' output=64 activation=tanh $between ${between:+activation=linear} '[dropout]' probability=.5 \
            '[connected]' output=10 activation=linear '[softmax]' >>drop.cfg
        train_on 1 drop.cfg -cmn_seed "$seed"
        keep drop "drop$seed$between"
    done
    cmp drop7.weights 'drop7[activation].weights'
    run -1 cmp -s drop7.weights drop8.weights
}

@test "layers before which nothing learns pass on on a GPU what they do on the CPU" {
    for layer in '[maxpool] size=2 stride=2' '[crop] crop_height=20 crop_width=20 [maxpool] size=2 stride=2'; do
        net_section batch=20 max_batches=2 channels=3 >first.cfg
        # shellcheck disable=SC2086
        printf '%s\n' $layer '[connected]' output=10 activation=linear '[softmax]' >>first.cfg
        train_on 1 first.cfg
    done
    sed -i s/channels=3/channels=1/ first.cfg
    run -1 darknet_on 1 classifier train small.data first.cfg -cmn
    [[ $output == *'[crop] on a GPU takes images of 3 channels'* ]]
}

# Three parts of the block: what is exchanged together is never less than 1 MiB (cmn/transports/nccl.h).
wide_cfg() {
    net_section batch=4 max_batches=5 subdivisions=2 "$@"
    printf '%s\n' '[convolutional]' 'filters=4' 'size=3' 'stride=2' 'pad=1' 'batch_normalize=1' 'activation=tanh' \
        '[connected]' 'output=880' 'activation=tanh' '[connected]' 'output=10' 'activation=linear' '[softmax]'
}

# That they change no sum of a communicator: tests/gpu/communicators/exchange.c.
@test "the size of buckets, which is found out by measuring, changes no bit on GPUs" {
    wide_cfg max_batches=30 >wide.cfg
    train_on 2 wide.cfg -cmn_overlap off -cmn_compress bf16
    grep -q ', overlap off' train.log
    keep wide off
    train_on 2 wide.cfg -cmn_compress bf16
    grep -q '^cmn: overlap .* ms a step' train.log
    cmp off.weights out/wide.weights
}

@test "cmn_sync_bn on GPUs: the CPU's weights, the same bits with overlap and after a restart, and a line where it goes through the host" {
    extra=('batch_normalize=1')
    smooth_cfg batch=20 max_batches=5 subdivisions=2 >norm.cfg
    # Not cuDNN's, which divides the variance otherwise (tests/gpu/README.md).
    unset FAKE_VARIANCE
    as_on_cpu 2 norm -cmn_sync_bn 1
    run -1 grep -q "through the host" train.log
    by 'mpi hierarchical' train_on 2 norm.cfg -cmn_sync_bn 1
    grep -q "cmn_sync_bn: statistics go through the host's memory: CMN_DEBUG_INTRA=mpi" train.log
    assert_close cpu-norm.weights out/norm.weights 1e-5
    # Parts of the gradients travel while the first layer's statistics do.
    wide_cfg >wide.cfg
    train_on 2 wide.cfg -cmn_sync_bn 1 -cmn_overlap off
    keep wide off
    CMN_DEBUG_BUCKET_MB=0.3 train_on 2 wide.cfg -cmn_sync_bn 1 -cmn_overlap on
    cmp off.weights out/wide.weights
}

@test "a trace of ranks on GPUs holds what was summed in the background" {
    wide_cfg max_batches=3 >wide.cfg
    for name in pure_nccl flat; do
        CMN_DEBUG_BUCKET_MB=0.3 by "$name" train_on 2 wide.cfg -cmn_overlap on -cmn_timeline trace.json
        # Three steps, two ranks; NCCL sums three parts, and messages two buckets, but in the first step, which does not overlap.
        jq -r '.traceEvents[] | select(.name | tostring | test("^exchange [0-9]")) | .name' trace.json | sort | uniq -c >spans
        cat spans
        [[ $(awk '{ print $1 }' spans | xargs) == "$([[ $name == flat ]] && echo 6 4 || echo 6 6 6)" ]]
    done
}

# waits STEPS KEY=VALUE ARGUMENTS...: what a rank that prints nothing waits for: copies to the GPU, copies from it, streams, the GPU, events;
# and copies to the GPU on a stream of their own, and how many of them a loader asked for. The key is one of [net].
waits() {
    smooth_cfg batch=8 max_batches="$1" "$2" >conv.cfg
    shift 2
    rm -rf out waits
    FAKE_WAITS=$PWD/waits train_on 2 conv.cfg -cmn_overlap off -cmn_verify 0 -cmn_validate 0 "$@" >/dev/null
    sort -n -k1,1 -k2,2 -k3,3 -k4,4 -k5,5 waits | sed -n 1p
}

@test "the host waits in a step on a GPU for what the document says, and for no more" {
    # shellcheck disable=SC2016  # as the document has it
    for row in 'pure_nccl |pure_nccl' 'hierarchical |hierarchical'; do
        few=$(by "${row#*|}" waits 6 subdivisions=1)
        more=$(by "${row#*|}" waits 14 subdivisions=1)
        # A loader that is late at the start or the end asks once more, or less.
        awk -v few="$few" '{ split(few, a); for (i = 1; i <= 5; i++) printf "%.0f%s", ($i - a[i]) / 8, i < 5 ? " " : "\n" }' \
            <<<"$more" >seen
        sed -n "s/^| ${row%%|*}| \([0-9]\)/\1/p" "$REPO/tests/gpu/README.md" | tr -d '|' | xargs >said
        diff said seen
    done
}

# Its input and labels are the two copies on a stream of their own.
@test "a step's first micro-batch is on its way before the step begins, each goes there once, and all have the CPU's weights" {
    for subdivisions in 1 4; do
        few=$(waits 6 "subdivisions=$subdivisions" -cmn_communicator pure_nccl)
        more=$(FAKE_SEED=1 waits 16 "subdivisions=$subdivisions" -cmn_communicator pure_nccl)
        echo "$few; $more"
        # The loader is a batch ahead of the last one, and in the first two steps may be early.
        # Back come loss and outputs of each micro-batch, marks and metrics.
        awk -v few="$few" -v n="$subdivisions" '{ split(few, a); all = $6 - a[6]; ahead = $7 - a[7]; back = $8 - a[8]
            exit !(all >= 20 * n - 4 && all <= 20 * n + 4 && ahead >= 16 && ahead <= 24 && back == 10 * (2 * n + 2)) }' <<<"$more"
        keep conv "$subdivisions"
        on_cpu train_on 2 conv.cfg
        assert_close out/conv.weights "$subdivisions.weights" 1e-5
    done
}

@test "what a communicator cannot do on GPUs is refused, and says which can" {
    mlp_cfg max_batches=2 >mlp.cfg
    fails_clearly_on 2 "cmn_exact=on does not go with GPUs: NCCL's order of adding follows the number of ranks: train on the CPU \(-nogpu\), or remove cmn_exact" \
        classifier train small.data mlp.cfg -cmn -cmn_batch global -cmn_exact on
    train_on 2 mlp.cfg -nogpu -cmn_batch global -cmn_exact on
}

@test "validation on GPUs counts what the CPU counts" {
    smooth_cfg batch=20 max_batches=4 >conv.cfg
    for place in on_cpu eval; do
        darknet=$([[ $place == on_cpu ]] && echo "$CPU" || echo "$DARKNET")
        timeout "$HANG_LIMIT" "${mpiexec[@]}" -n 2 "$darknet" classifier train small.data conv.cfg -cmn -cmn_seed 7 -cmn_report_every 2 >train.log 2>&1
        jq -r '.[-1] | ."validation/main/accuracy", (."validation/main/loss" * 1e4 | round)' out/conv.json >$place.rows
        FAKE_NO_NCCL=1 timeout "$HANG_LIMIT" "${mpiexec[@]}" -n 3 "$darknet" classifier valid small.data conv.cfg out/conv.weights -cmn 2>/dev/null |
            sed -n 's/^validation: \(.*\), loss.*/\1/p' >>$place.rows
        cat $place.rows
    done
    [[ $(wc -l <eval.rows) -eq 3 ]]
    cmp on_cpu.rows eval.rows
}

# A loss that is a number, and gradients that are none: the first layer's weights are as small as the second's are large, and so is what
# comes out.
@test "a gradient that is not finite is named before any weight is touched, on GPU and CPU alike" {
    net_section batch=10 max_batches=3 >net.cfg
    printf '%s\n' '[convolutional]' 'filters=1' 'size=1' 'stride=1' 'pad=0' 'activation=linear' \
        '[convolutional]' 'filters=10' 'size=28' 'stride=28' 'pad=0' 'activation=linear' '[softmax]' >>net.cfg
    perl -e 'print pack("l<3q<", 0, 2, 0, 0), pack("f<*", 0, 2e-38, (0) x 10, map { 1e37 * (($_ * 7919 % 13) - 6) } 1 .. 7840)' >start.weights
    for run in 'on_cpu 1' 'on_gpu 2 -cmn_overlap on' 'on_gpu 2 -cmn_double_buffering 1'; do
        rm -rf out
        DARKNET=$BUILD/fake/bin/darknet
        [[ $run != on_cpu* ]] || DARKNET=$CPU
        read -r _ n key <<<"$run" # with double buffering the second step finds it, and names the first
        # shellcheck disable=SC2086  # a key and its value
        fails_clearly_on "$n" "iteration 1: weight_updates of layer 0 \(convolutional\): (inf|-inf|nan).*its 10 images are in out/net-1.rank-[0-2].nonfinite.txt" \
            classifier train small.data net.cfg start.weights -clear -cmn -cmn_seed 7 -cmn_validate 0 $key
    done
    on_cpu darknet_on 1 classifier train small.data net.cfg start.weights -clear -cmn -cmn_validate 0 -cmn_nonfinite ignore >train.log 2>&1
    # All steps are left out, and no bit behind the file's head changes.
    darknet_on 2 classifier train small.data net.cfg start.weights -clear -cmn -cmn_seed 7 -cmn_validate 0 -cmn_nonfinite skip >train.log 2>&1
    grep -E 'iteration 3 is left out \(3 so far\): rank [01]@.*: weight_updates of layer 0 \(convolutional\): (inf|-inf|nan)' train.log
    cmp <(tail -c +21 start.weights) <(tail -c +21 out/net.weights)
    # Finite on each rank, and too large for fp16 as a sum.
    perl -e 'print pack("l<3q<", 0, 2, 0, 0), pack("f<*", 0, 2e-8, (0) x 10, map { 1e7 * (($_ * 7919 % 13) - 6) } 1 .. 7840)' >start.weights
    fails_clearly_on 2 'the sum of the gradients does not fit into 16 bits \(cmn_compress=fp16\): use bf16' \
        classifier train small.data net.cfg start.weights -clear -cmn -cmn_seed 7 -cmn_validate 0 -cmn_compress fp16
    for keys in '' '-cmn_double_buffering 1'; do
        # shellcheck disable=SC2086  # keys and their values
        darknet_on 2 classifier train small.data net.cfg start.weights -clear -cmn -cmn_seed 7 -cmn_validate 0 -cmn_compress fp16 \
            -cmn_nonfinite skip $keys >train.log 2>&1
        grep -E 'iteration 2 is left out \(2 so far\): layer [01], (weight|bias)_updates: the sum of the gradients does not fit' train.log
        cmp <(tail -c +21 start.weights) <(tail -c +21 out/net.weights)
    done
}

# Their outputs are activated by the GPU where there is one.
@test "a GPU build with -nogpu trains yolo, region and iseg layers to the bits of the CPU build without oneDNN" {
    load drivers
    small_data 24 4
    make_data
    yolo_cfg max_batches=2 >yolo.cfg
    region_cfg max_batches=2 >region.cfg
    mask_cfg 84 '[iseg]' classes=80 ids=4 | sed 's/^max_batches=.*/max_batches=2/' >iseg.cfg
    for way in 'detector yolo' 'detector region' 'isegmenter iseg'; do
        cfg=${way#* }
        rm -rf out
        CMN_DEBUG_ONEDNN=off on_cpu darknet_on 1 "${way% *}" train data.data "$cfg.cfg" -cmn -cmn_seed 7 >train.log 2>&1
        mv "$(result "$cfg")" cpu.weights
        darknet_on 1 "${way% *}" train data.data "$cfg.cfg" -cmn -cmn_seed 7 -nogpu >train.log 2>&1
        cmp cpu.weights "$(result "$cfg")"
    done
}

@test "which GPU: number of the rank, -i, -gpus, -nogpu; one GPU for two ranks only where that is allowed" {
    mlp_cfg max_batches=2 >mlp.cfg
    train_on 1 mlp.cfg -i 4
    train_on 1 mlp.cfg -gpus 3
    train_on 2 mlp.cfg -gpus 0 # Darknet would give all ranks that one
    grep -qx 'cmn: -gpus 0 has no effect: each rank of a node takes the GPU of its own number' train.log
    fails_clearly_on 1 'GPU 5 cannot be used' classifier train small.data mlp.cfg -cmn -i 5
    FAKE_GPUS=1
    fails_clearly_on 2 'ranks 0 and 1 of this node .* use the same GPU, number 0 of 1: start no more ranks on a node than it has GPUs' classifier train small.data mlp.cfg -cmn
    # NCCL refuses several ranks on one GPU.
    CMN_DEBUG_SHARE_GPUS=1 train_on 2 mlp.cfg
    grep -q 'communicator single_node (auto: GPUs)' train.log
    CMN_DEBUG_SHARE_GPUS=1 fails_clearly_on 2 'pure_nccl cannot be used here: NCCL refuses several ranks on one GPU: use hierarchical' \
        classifier train small.data mlp.cfg -cmn -cmn_communicator pure_nccl
    # Two slices of a GPU are two to CUDA, and one to NCCL.
    FAKE_GPUS=2
    FAKE_MIG=1 train_on 2 mlp.cfg
    grep -q 'communicator single_node (auto: GPUs)' train.log
    fails_clearly_on 2 'same GPU, number 1 of 2' classifier train small.data mlp.cfg -cmn -i 1
    rank_1_runs 'set -- "$@" -nogpu'
    fails_clearly 'some ranks use a GPU and some the CPU' "${mpiexec[@]}" -n 2 "$otherwise" "$DARKNET" classifier train small.data mlp.cfg -cmn
    FAKE_GPUS=0
    fails_clearly_on 1 'GPU 0 cannot be used: .*-nogpu' classifier train small.data mlp.cfg -cmn
    train_on 1 mlp.cfg -nogpu
}

@test "cmn doctor on GPUs counts the micro-batches on their way there, and those that are there before their turn" {
    small_data 20 10
    mlp_cfg batch=4000 subdivisions=2 >mlp.cfg
    # 28 * 28 floats and 10 labels for each of 2000 images: 6.06 MiB, three of them page-locked.
    for where in '' -nogpu; do
        # shellcheck disable=SC2086  # a word, or none
        "$DARKNET" cmn doctor small.data mlp.cfg -cmn_validate off $where >"report$where" || [[ $? -eq 1 ]]
    done
    cat report report-nogpu
    images() { sed -nE 's/^memory of a rank: .* images being loaded ([0-9]+) MiB.*/\1/p' "$1"; }
    more=$(($(images report) - $(images report-nogpu)))
    ((more == 18))
    grep -qx '  on the GPU, beside what Darknet takes: 12 MiB for images and labels that are there before their turn' report
    run -1 grep 'on the GPU' report-nogpu
}

# stalls CFG KERNEL PHASE ARGUMENTS...: a training whose rank 1 is stopped for good as that kernel comes for the 21st time. The watchdog of
# rank 0 says so, and that rank 0 waits in PHASE.
stalls() {
    local limit cfg=$1 kernel=$2 phase=$3
    shift 3
    limit=$(on_busy 2)
    rank_1_runs "export FAKE_STOPPED=21:$kernel; echo \$\$ >pid"
    # Nothing to tune: then NCCL is all that it can wait for. MPI's waiting: watchdog.bats.
    run -75 timeout --kill-after=5 500 "${mpiexec[@]}" -n 2 "$otherwise" "$DARKNET" classifier train small.data "$cfg" -cmn -cmn_timeout "$limit" \
        -cmn_overlap off -cmn_verify 0 "$@"
    kill -KILL "$(cat pid)" 2>/dev/null || true
    echo "$output"
    grep -E '^cmn\[rank 0@.*\] nothing moved for '"$limit"' s \(cmn_timeout\): rank 1@.* is stopped .*; 1 other rank waits for it in: '"$phase" <<<"$output"
}

@test "a stalled rank: the others end after cmn_timeout, and say who it is" {
    mlp_cfg max_batches=1000000 >mlp.cfg
    stalls mlp.cfg gradient_array_kernel 'the sum'
}

@test "a rank that stalls while statistics of batch normalisation are exchanged on GPUs: the others end, and say who it is" {
    extra=('batch_normalize=1')
    smooth_cfg max_batches=1000000 >norm.cfg
    # The first of four in a step: the loss comes behind it.
    stalls norm.cfg pack_statistics 'backward$' -cmn_sync_bn 1
}

@test "a rank whose own GPU stalls is named, and not said to wait for others" {
    mlp_cfg max_batches=1000000 >mlp.cfg
    rank_1_runs 'export FAKE_FROZEN=20:gradient_array_kernel'
    limit=$(on_busy 2)
    for keys in '|backward on the GPU' '-cmn_double_buffering 1 -cmn_clip 1|backward on the GPU' \
        '-cmn_double_buffering 1 -cmn_communicator flat|forward on the GPU'; do
        # shellcheck disable=SC2086  # keys and their values
        run -75 timeout 500 "${mpiexec[@]}" -n 2 "$otherwise" "$DARKNET" classifier train small.data mlp.cfg -cmn -cmn_timeout "$limit" -cmn_verify 0 ${keys%|*}
        echo "$output"
        grep -E 'nothing moved for '"$limit"' s \(cmn_timeout\): rank 1@[^;]*'"${keys#*|}" <<<"$output"
    done
}
