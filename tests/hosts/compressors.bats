#!/usr/bin/env bats
# shellcheck disable=SC2030,SC2031,SC2154  # job: helpers.bash; tests are functions that shellcheck takes for subshells
# Trainings that send less, or while backward goes on, between nodes: bytes by the interfaces' counters against what each
# compressor claims, and the same weights whatever is exchanged together.

load helpers

setup_file() { nodes 3; }
teardown_file() { cluster_down; }

setup() {
    enter_cluster
    small_data 200 50
}

# Floats of the net below that may travel through a compressor, and of the small tensors and the metrics, which travel whole.
INPUTS=$((784 * CHANNELS))
LOSSY=$((INPUTS * 512 + 512 * 10))
WHOLE=$((512 + 10 + 16))

# wide_cfg STEPS >FILE: most of its floats lie in one matrix.
wide_cfg() {
    net_section batch=10 max_batches="$1"
    printf '%s\n' '[connected]' 'output=512' "activation=relu" '[connected]' 'output=10' 'activation=linear' '[softmax]'
}

# sent_by SHAPE [KEY VALUE...]: sets sent to the bytes a step that each node sends, headers of packets apart, one number a
# node: those of a training of 42 steps less those of one of 2 steps, so that the start and the end cancel.
sent_by() {
    local steps node i before=() short=()
    for steps in 2 42; do
        wide_cfg $steps >wide.cfg
        before=()
        for node in $cluster_nodes; do
            before+=("$(cluster_payload "$node")")
        done
        train_on "$1" wide.cfg -cmn_verify 0 "${@:2}"
        sent=() i=0
        for node in $cluster_nodes; do
            sent+=($(($(cluster_payload "$node") - before[i])))
            i=$((i + 1))
        done
        [[ $steps -gt 2 ]] || short=("${sent[@]}")
    done
    for i in "${!sent[@]}"; do
        sent[i]=$(((sent[i] - short[i]) / 40))
    done
}

# claims NAME WIRE BYTES SHAPE [KEY VALUE...]: what the compressor says of itself is WIRE, which makes BYTES for LOSSY floats on
# SHAPE, and each node sends that much, and the whole tensors, within 5 %. The watchdogs' heartbeats come with the time: where other
# programs have the cores, 40 steps can take minutes, so one of three times counts.
claims() {
    local i plus=${4//[0-9]/} nodes claim times bad
    nodes=$((${#plus} + 1))
    grep -qF ".wire = \"$2\"" "$REPO"/cmn/compression/*.c
    claim=$(($3 + 2 * (nodes - 1) * 4 * WHOLE / nodes))
    for ((times = 0; times < 3; times++)); do
        bad=0
        sent_by "$4" -cmn_communicator shm "${@:5}"
        for ((i = 0; i < nodes; i++)); do
            echo "# $1 on $4: node$((i + 1)) sent ${sent[i]} bytes a step, claimed $claim" >&3
            ((sent[i] * 100 >= 95 * claim && sent[i] * 100 <= 105 * claim)) || bad=$((bad + 1))
        done
        ((bad)) || break
    done
    ((bad == 0))
}

@test "bytes: none" { claims none '2(M-1)/M * 4n' $((4 * LOSSY)) 1+1; }

@test "bytes: fp16, bf16" {
    claims fp16 '2(M-1)/M * 2n' $((2 * LOSSY)) 1+1 -cmn_compress fp16
    claims bf16 '2(M-1)/M * 2n' $((2 * LOSSY)) 2+2 -cmn_compress bf16
}

@test "bytes: powersgd" {
    local sides=$((INPUTS + 512 + 512 + 10)) wire='2(M-1)/M * 4 * rank * (rows + columns)'
    claims powersgd "$wire" $((4 * 4 * sides)) 2+1 -cmn_compress powersgd
    claims powersgd "$wire" $((2 * 2 * 4 * 8 * sides / 3)) 1+1+1 -cmn_compress powersgd:8
}

@test "bytes: none, three nodes" { claims none '2(M-1)/M * 4n' $((2 * 2 * 4 * LOSSY / 3)) 1+1+1; }

# mixed_cfg >FILE: tensors from 8 floats to 1.2 MiB, batch normalisation, two passes a step.
mixed_cfg() {
    net_section batch=40 subdivisions=2 max_batches=4
    printf '%s\n' '[convolutional]' 'batch_normalize=1' 'filters=8' 'size=3' 'stride=1' 'pad=1' 'activation=relu' \
        '[maxpool]' 'size=2' 'stride=2' '[connected]' 'output=200' 'activation=relu' \
        '[connected]' 'output=50' 'activation=relu' '[connected]' 'output=10' 'activation=linear' '[softmax]'
}

# Whatever is exchanged together, and when; also where `auto` tries and measures.
@test "3+2: overlap and size of buckets change no bit" {
    local name mb
    mixed_cfg >mixed.cfg
    for name in shm hierarchical two_dimensional; do
        trained off 3+2 mixed.cfg -cmn_communicator $name -cmn_overlap off
        for mb in 0.01 1; do
            echo "$name, buckets of $mb MiB"
            CMN_DEBUG_BUCKET_MB=$mb train_on 3+2 mixed.cfg -cmn_communicator $name -cmn_overlap on -cmn_verify 1
            cmp off.weights "out/mixed$FINAL.weights"
        done
        train_on 3+2 mixed.cfg -cmn_communicator $name
        cmp off.weights "out/mixed$FINAL.weights"
    done
}

@test "backward that stops early: overlap changes no bit, and what was not reached is exchanged all the same" {
    mixed_cfg | awk '{ print } /^output=200/ { print "stopbackward=1" }' >stops.cfg
    grep -q stopbackward stops.cfg
    pjreddies || sed -i /^batch_normalize/d stops.cfg # frozen, that tree takes rolling statistics, which are 0 here
    for name in shm hierarchical; do
        trained off 2+1 stops.cfg -cmn_communicator $name -cmn_overlap off
        CMN_DEBUG_BUCKET_MB=0.01 train_on 2+1 stops.cfg -cmn_communicator $name -cmn_overlap on -cmn_verify 1
        cmp off.weights "out/stops$FINAL.weights"
    done
}

# same_bits_with COMMUNICATOR MIB KEY VALUE: with a compressor, too.
same_bits_with() {
    trained off 2+2 mixed.cfg -cmn_communicator "$1" -cmn_overlap off "${@:3}"
    CMN_DEBUG_BUCKET_MB=$2 train_on 2+2 mixed.cfg -cmn_communicator "$1" -cmn_overlap on "${@:3}" -cmn_verify 1
    cmp off.weights "out/mixed$FINAL.weights"
}

@test "2+2: overlap and size of buckets change no bit of what a compressor does" {
    mixed_cfg >mixed.cfg
    same_bits_with shm 0.01 -cmn_compress bf16
    same_bits_with two_dimensional 0.1 -cmn_compress powersgd
    same_bits_with hierarchical 0.01 -cmn_compress powersgd
}

# smooth_cfg KEY=VALUE... >FILE: mixed_cfg with nothing that a rounding flips, and steps of 50 images on 5 ranks.
smooth_cfg() {
    mixed_cfg | sed '/^\[maxpool\]/,/^stride=2/d; s/^stride=1/stride=2/; s/relu/tanh/; s/^batch=.*/batch=10/; s/^max_batches=.*/max_batches=13/' |
        if (($#)); then sed "s/^${1%%=*}=.*/$1/"; else cat; fi
}

# trains_with NEAR FAR SHAPE COMMUNICATOR KEY VALUE...: to the same weights on all ranks. Their distance from those of fp32 is below
# NEAR, and not below FAR, of the way that fp32 has come: without any exchange it is 0.9, and 1 where all that is sent is 0.
trains_with() {
    local share
    train_on "$3" smooth.cfg -cmn_communicator "$4" -cmn_verify 1 "${@:5}"
    grep -E "^cmn: [0-9]+ ranks on 2 nodes, communicator $4 \(as asked\)" train.log
    share=$(awk -v d="$(difference fp32.weights "out/smooth$FINAL.weights")" -v way="$way" 'BEGIN { print d / way }')
    echo "${*:4}: $share"
    awk -v share="$share" -v near="$1" -v far="$2" 'BEGIN { exit !(share ~ /^[0-9]/ && share + 0 < near + 0 && share + 0 >= far + 0) }'
}

@test "two nodes: every way trains to the same weights on all ranks, close to fp32's" {
    # No epoch ends within the 650 images, where local steps would end, too.
    small_data 1000 50
    smooth_cfg learning_rate=1e-12 >start.cfg
    train_on 3+2 start.cfg
    smooth_cfg >smooth.cfg
    trained fp32 3+2 smooth.cfg
    assert_far "out/start$FINAL.weights" fp32.weights 0.05
    way=$(difference "out/start$FINAL.weights" fp32.weights)
    trains_with 1e-4 1e-7 3+2 shm -cmn_compress fp16
    trains_with 1e-3 1e-6 3+2 hierarchical -cmn_compress bf16
    trains_with 0.3 0.02 3+2 flat -cmn_compress powersgd:8
    trains_with 0.75 0.05 3+2 two_dimensional -cmn_compress powersgd:1
    trains_with 0.3 0.02 3+2 shm -cmn_compress powersgd
    trains_with 0.3 0.02 3+2 hierarchical -cmn_double_buffering 1
    trains_with 0.3 0.02 3+2 shm -cmn_double_buffering 1 -cmn_compress powersgd
    trains_with 0.2 0.005 3+2 two_dimensional -cmn_local_steps 4
    trains_with 0.3 0.01 3+2 shm -cmn_local_steps 2 -cmn_double_buffering 1 -cmn_compress fp16
}
