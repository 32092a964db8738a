#!/usr/bin/env bash
# same-bits.sh: proves that no trained bit has changed between the commit REF and this tree.
#
#   make same-bits REF=commit [SAME=fast] [ONLY='pattern…'] [SAME_BITS_DIR=build/same-bits]
#
# It trains the small nets of the table below with REF's program and with this tree's, and compares what they leave: weights
# files (bytes), JSON logs and mAP files (all but times, rates, hosts), what evaluations print. One line an entry, then
# `N entries equal, N differ, N skipped`; status 1 when any differs. An entry that fails differs, also when both fail.
#
#   REF            the commit to compare with. Its program and results stay in SAME_BITS_DIR/COMMIT for later calls, for
#                  the same entry, data, machine and libraries. Several clones may share the folder.
#   SAME=fast      only the entries whose line begins with +
#   ONLY           only the entries whose name contains one of these words (a word may be a pattern of the shell)
#   SAME_JOBS      entries that run side by side: one for each core
#   AGAIN=1        runs REF's program in place of this tree's: an entry that differs is not deterministic
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C OPENBLAS_NUM_THREADS=1

: "${BUILD:=$PWD/build/cpu}" "${DARKNET:=$BUILD/bin/darknet}" "${STAND_IN:=$BUILD/fake/bin/darknet-without-cudnn}" "${CC:=gcc}"
: "${SAME:=all}" "${ONLY:=}" "${SAME_BITS_DIR:=build/same-bits}" "${SAME_JOBS:=$(nproc)}" "${AGAIN:=}" "${MNIST:=$PWD/data/mnist}"
if [[ -z ${MPIEXEC:-} ]]; then
    MPIEXEC='mpiexec --oversubscribe --bind-to none --mca mpi_yield_when_idle 1'
    [[ $(id -u) -ne 0 ]] || MPIEXEC+=' --allow-run-as-root'
fi
read -ra mpiexec <<<"$MPIEXEC"
export MPIEXEC
# shellcheck source=tests/hosts/cluster.bash
. tests/hosts/cluster.bash

LIMIT=60    # seconds for a run that takes about one

# ---- The table -----------------------------------------------------------------------------------------------
#
# name | ranks | command | keys
#
# + before the name: the fast tier has it, too.
# ranks    N; N+M ranks on emulated nodes; gpu:N over the stand-in for CUDA; alone: -cmn without mpiexec; plain: without -cmn.
#          A>B: what goes on from a checkpoint (stop=) has other ranks.
# command  a driver of Darknet and a net of the list below, then changes of [net], and
#            from=K     the training ends after K steps, and another one begins with its weights
#            stop=K     the training ends after K steps with a checkpoint, and the same command goes on from there
#            back=K     a checkpoint every K steps; then the same command goes on from the first one
#            then=WHAT  that evaluator looks at the weights at the end
# keys     without their cmn_, or variables CMN_DEBUG_NAME=value. Where the entry does not say otherwise: seed=7 batch=per_rank validate=0 report_every=3.
#          The word `bare` leaves all but the seed at the program's defaults.
#
# What does not belong here, because it does not repeat itself:
#   communicator=auto on several nodes: measures which one is fastest, and flat rounds otherwise than the others.
#   plain trainings of a detector, or with dropout, or threads above 1: several threads draw from one rand().
entries() {
    cat <<'TABLE'
# The program's own defaults.
+ bare-mlp                                       | 2           | classifier mlp | bare validate=1
+ bare-conv                                      | 3           | classifier conv | bare
+ bare-yolo                                      | 2           | detector yolo | bare validate=1
bare-resume                                      | 2           | classifier drop stop=4 | bare
bare-three-nodes                                 | 1+1+1       | classifier conv | bare communicator=shm

# Without -cmn; and with it, but without mpiexec.
+ plain-mlp                                      | plain       | classifier mlp threads=1 |
+ plain-conv                                     | plain       | classifier conv threads=1 subdivisions=2 then=valid |
plain-adam                                       | plain       | classifier conv threads=1 adam=1 learning_rate=.001 |
plain-layers                                     | plain       | classifier layers threads=1 |
plain-routes                                     | plain       | classifier routes threads=1 policy=poly power=2 burn_in=3 |
plain-from                                       | plain       | classifier mlp threads=1 from=4 |
alone-conv                                       | alone       | classifier conv subdivisions=2 |
+ alone-yolo                                     | alone       | detector yolo then=map |
alone-resume                                     | alone       | classifier drop stop=4 |

# Each communicator with each kind of net, and nothing else.
+ one-mlp                                        | 1           | classifier mlp | validate=1
one-conv                                         | 1           | classifier conv | batch=global
one-drop                                         | 1           | classifier drop subdivisions=2 |
one-yolo                                         | 1           | detector yolo |
+ naive-mlp                                      | 2           | classifier mlp | communicator=naive
+ naive-conv                                     | 3           | classifier conv | communicator=naive batch=global
+ flat-mlp                                       | 3           | classifier mlp | communicator=flat
+ flat-conv                                      | 2           | classifier conv subdivisions=2 | communicator=flat
+ flat-huge                                      | 3           | classifier huge | communicator=flat
+ hier-mlp                                       | 2           | classifier mlp | communicator=hierarchical
+ 2d-mlp                                         | 3           | classifier mlp | communicator=two_dimensional
+ single-mlp                                     | 2           | classifier mlp | communicator=single_node
single-huge                                      | 2           | classifier huge | communicator=single_node
+ shm-mlp                                        | 3           | classifier mlp | communicator=shm
+ shm-conv                                       | 2           | classifier conv | communicator=shm
shm-drop                                         | 3           | classifier drop | communicator=shm verify=2
+ shm-layers                                     | 3           | classifier layers | communicator=shm
dummy-conv                                       | 2           | classifier conv | communicator=dummy
+ five-conv                                      | 5           | classifier conv batch=22 | communicator=shm batch=global

# What the gradient goes through, one at a time.
+ adam-conv                                      | 2           | classifier conv adam=1 learning_rate=.001 |
adam-layers                                      | 3           | classifier layers adam=1 learning_rate=.002 | batch=global
+ sync-conv                                      | 3           | classifier conv | sync_bn=1
+ skip-spoilt                                    | 2           | regressor spoilt | nonfinite=skip
skip-spoilt-double                               | 3           | regressor spoilt | nonfinite=skip communicator=flat double_buffering=1
skip-spoilt-sync                                 | 2           | regressor spoilt | nonfinite=skip sync_bn=1
skip-spoilt-adam                                 | 2           | regressor spoilt adam=1 learning_rate=.001 subdivisions=2 | nonfinite=skip
+ lars-conv                                      | 2           | classifier conv | lars=0.01
lars-layers                                      | 3           | classifier layers | lars=0.01 communicator=flat
+ local-conv                                     | 3           | classifier conv | local_steps=2 validate=1
local-four                                       | 2           | classifier wide | local_steps=4 communicator=hierarchical
+ double-mlp                                     | 2           | classifier mlp | double_buffering=1 validate=1
powersgd-mlp                                     | 2           | classifier mlp | communicator=flat compress=powersgd:1
+ powersgd-conv                                  | 3           | classifier conv | communicator=flat compress=powersgd overlap=on CMN_DEBUG_BUCKET_MB=0.01
powersgd-huge                                    | 2           | classifier huge | communicator=flat compress=powersgd:8 overlap=on CMN_DEBUG_BUCKET_MB=0.5
+ fp16-conv                                      | 2           | classifier conv | communicator=flat compress=fp16
fp16-huge                                        | 3           | classifier huge | communicator=flat compress=fp16 overlap=off
+ bf16-conv                                      | 3           | classifier conv | communicator=flat compress=bf16 overlap=on CMN_DEBUG_BUCKET_MB=0.02
codecs-on-one-rank                               | 1           | classifier conv | compress=powersgd double_buffering=1
lars-on-one-rank                                 | 1           | classifier conv | lars=.01 local_steps=1
local-on-one-rank                                | 1           | classifier conv | local_steps=3

# Rates, lists, reports: what decides which images come, how they look, and how far they move the weights.
+ rate-steps                                     | 2           | classifier mlp policy=steps steps=3,6 scales=.5,.1 | scale_lr=linear
rate-poly                                        | 3           | classifier mlp policy=poly power=2 burn_in=4 | scale_lr=linear
rate-exp                                         | 2           | classifier mlp policy=exp gamma=.9 |
rate-sigmoid                                     | 2           | classifier mlp policy=sigmoid gamma=.5 step=4 | batch=global
rate-random                                      | 3           | classifier mlp policy=random power=.5 |
+ list-shard                                     | 3           | classifier mlp max_batches=15 | scatter=shard
list-none                                        | 2           | classifier mlp max_batches=15 | scatter=none
list-epochs                                      | 3           | classifier mlp batch=11 max_batches=1000 | epochs=2 validate=1 batch=global
list-seed                                        | 2           | classifier conv | seed=123456
list-uneven                                      | 3           | classifier drop batch=25 subdivisions=5 | batch=global
list-no-cache                                    | 2           | classifier mlp max_batches=15 threads=4 | cache_mb=0 report=quiet
+ list-colours                                   | 2           | cifar cifar | validate=0
+ reports                                        | 2           | classifier conv | report=lines report_every=1 graph=net.dot timeline=trace.json rank_logs=out
+ validate-conv                                  | 3           | classifier conv max_batches=15 | validate=1
+ random                                         | 2           | detector random max_batches=203 |

# A checkpoint, and on from there.
+ resume-conv                                    | 2           | classifier conv stop=4 |
resume-epoch                                     | 3           | classifier drop stop=6 max_batches=14 | validate=1 checkpoint=3
resume-random                                    | 2           | detector random stop=2 max_batches=203 |
+ resume-2-3                                     | 2>3         | classifier drop stop=5 | batch=global
resume-3-2                                       | 3>2         | classifier conv stop=6 | batch=per_rank
resume-1-3                                       | 1>3         | classifier conv stop=4 | batch=global sync_bn=1
resume-3-1                                       | 3>1         | classifier conv stop=4 | batch=global
resume-adam-2-3                                  | 2>3         | classifier conv adam=1 learning_rate=.001 stop=4 |
resume-back                                      | 2           | classifier drop back=4 |
resume-back-yolo                                 | 3           | detector yolo back=3 | batch=global
resume-back-local                                | 2           | classifier conv back=5 max_batches=13 | local_steps=3
+ resume-back-double                             | 3           | classifier conv back=5 max_batches=13 | communicator=flat compress=bf16 local_steps=3 double_buffering=1
resume-back-powersgd                             | 3           | classifier wide back=4 | communicator=flat compress=powersgd
resume-back-local-3-2                            | 3>2         | classifier conv back=5 max_batches=13 | local_steps=3
resume-back-random                               | 2           | detector random back=5 max_batches=204 |
resume-back-1-node                               | 2+1>3       | classifier conv back=4 | communicator=two_dimensional
resume-local-3-2                                 | 3>2         | classifier conv stop=4 | local_steps=2
resume-double-2-3                                | 2>3         | classifier conv stop=4 | communicator=flat double_buffering=1
resume-shard-2-3                                 | 2>3         | classifier mlp stop=4 | scatter=shard
+ resume-nodes-2+2-3                             | 2+2>3       | classifier conv stop=4 | communicator=two_dimensional batch=global
resume-nodes-2-1+1                               | 2>1+1       | classifier conv stop=4 | communicator=hierarchical lars=.01
+ from-weights                                   | 2           | classifier conv from=4 |
from-weights-yolo                                | 2           | detector yolo from=3 |

# Several nodes.
+ nodes-naive                                    | 2+2         | classifier mlp | communicator=naive
nodes-naive-huge                                 | 2+2         | classifier huge | communicator=naive
+ nodes-flat                                     | 2+2         | classifier conv | communicator=flat
nodes-flat-huge                                  | 2+1         | classifier huge | communicator=flat
+ nodes-hier                                     | 2+2         | classifier conv | communicator=hierarchical overlap=on CMN_DEBUG_BUCKET_MB=0.01
nodes-hier-huge                                  | 2+2         | classifier huge | communicator=hierarchical overlap=on CMN_DEBUG_BUCKET_MB=0.5
+ nodes-2d                                       | 2+2         | classifier wide | communicator=two_dimensional overlap=on CMN_DEBUG_BUCKET_MB=0.1
+ nodes-shm                                      | 2+2         | classifier conv | communicator=shm overlap=off
nodes-shm-huge                                   | 2+2         | classifier huge | communicator=shm overlap=on CMN_DEBUG_BUCKET_MB=1
+ nodes-powersgd                                 | 2+1         | classifier conv | communicator=hierarchical compress=powersgd
nodes-powersgd-huge                              | 2+2         | classifier huge | communicator=two_dimensional compress=powersgd
+ nodes-bf16                                     | 2+2         | classifier conv | communicator=shm compress=bf16 overlap=off
nodes-fp16-huge                                  | 1+1         | classifier huge | communicator=shm compress=fp16 overlap=on CMN_DEBUG_BUCKET_MB=0.5
nodes-local-double                               | 2+1         | classifier wide | communicator=two_dimensional local_steps=2 double_buffering=1
nodes-spoilt                                     | 2+1         | regressor spoilt | communicator=shm nonfinite=skip
+ nodes-3+2                                      | 3+2         | detector yolo | communicator=shm
nodes-3+2-2d                                     | 3+2         | classifier huge batch=23 | communicator=two_dimensional compress=bf16 batch=global
nodes-three-huge                                 | 2+1+1       | classifier huge | communicator=two_dimensional
nodes-map                                        | 2+1         | detector yolo then=map | validate=1 communicator=shm
nodes-valid                                      | 1+2         | classifier conv then=valid | communicator=shm

# Evaluators.
+ valid                                          | 2           | classifier conv then=valid |
valid-3                                          | 3           | classifier drop then=valid |
+ map-yolo                                       | 2           | detector yolo flip=0 angle=0 aspect=1 learning_rate=.01 max_batches=150 then=map | epochs=75 validate=25 report_every=50
+ map-region                                     | 3           | detector region flip=0 angle=0 aspect=1 learning_rate=.01 max_batches=150 then=map | validate=20 batch=global report_every=50
map-grid                                         | 2           | yolo grid flip=0 angle=0 aspect=1 learning_rate=.005 max_batches=100 then=map |
detector-valid                                   | 2           | detector yolo then=valid |
detector-recall                                  | 2           | detector yolo then=recall |

# The other drivers.
+ grid                                           | 2           | yolo grid |
coco                                             | 3           | coco grid | batch=global
+ numbers                                        | 2           | regressor numbers |
tags                                             | 2           | tag tags |
+ masks                                          | 2           | segmenter masks |
objects                                          | 3           | isegmenter objects |
larger                                           | 2           | super larger |
cifar-plainly                                    | 3           | cifar cifar | batch=global
routes                                           | 2           | classifier routes |
routes-sync                                      | 3           | classifier routes | sync_bn=1 batch=global

# Over the stand-in for CUDA.
+ gpu-mlp                                        | gpu:1       | classifier mlp |
+ gpu-conv                                       | gpu:3       | classifier conv subdivisions=2 | batch=global
gpu-drop                                         | gpu:2       | classifier drop |
gpu-yolo                                         | gpu:2       | detector yolo then=map | validate=1
gpu-adam                                         | gpu:2       | classifier conv adam=1 learning_rate=.001 |
+ gpu-nccl-bf16                                  | gpu:2       | classifier wide | communicator=pure_nccl compress=bf16 overlap=off
gpu-nccl-fp16                                    | gpu:3       | classifier wide | communicator=pure_nccl compress=fp16 overlap=on CMN_DEBUG_BUCKET_MB=1
gpu-single                                       | gpu:2       | classifier wide | communicator=single_node
gpu-hier                                         | gpu:3       | classifier wide | communicator=hierarchical
gpu-2d                                           | gpu:2       | classifier wide | communicator=two_dimensional
+ gpu-non-cuda-aware                             | gpu:3       | classifier huge | communicator=non_cuda_aware
gpu-non-cuda-aware-overlap                       | gpu:2       | classifier wide | communicator=non_cuda_aware overlap=on CMN_DEBUG_BUCKET_MB=1
gpu-sync                                         | gpu:2       | classifier conv | sync_bn=1
gpu-resume                                       | gpu:2       | classifier conv stop=4 |
gpu-to-cpu                                       | gpu:2>2     | classifier conv stop=4 |

# With the entries above, each pair of values at least once, on one node.
+ 3-naive-drop-local-resume                      | 3           | classifier drop subdivisions=2 stop=4 | communicator=naive local_steps=2 batch=global scatter=none
+ 2-flat-conv-powersgd-overlap-lars-sync-resume  | 2           | classifier conv stop=4 | communicator=flat compress=powersgd overlap=on CMN_DEBUG_BUCKET_MB=0.01 lars=.01 sync_bn=1 scale_lr=linear scatter=shard
+ 3-flat-mlp-fp16-local-double                   | 3           | classifier mlp | communicator=flat compress=fp16 double_buffering=1 local_steps=3 scale_lr=linear
+ 3-flat-yolo-bf16-overlap-sync-adam             | 3           | detector yolo adam=1 learning_rate=.001 subdivisions=2 | communicator=flat compress=bf16 overlap=on CMN_DEBUG_BUCKET_MB=0.01 sync_bn=1 batch=global
3-hier-drop-lars-skip-resume                     | 3           | classifier drop subdivisions=2 stop=4 | communicator=hierarchical overlap=off lars=.01 nonfinite=skip scale_lr=linear scatter=shard
+ 3-hier-mlp-lars                                | 3           | classifier mlp subdivisions=2 | communicator=hierarchical lars=.01 scale_lr=linear
+ 2-2d-conv-local                                | 2           | classifier conv subdivisions=2 | communicator=two_dimensional overlap=off local_steps=2 batch=global scatter=shard
3-2d-yolo-lars-sync-skip-resume                  | 3           | detector yolo stop=4 | communicator=two_dimensional lars=.01 sync_bn=1 nonfinite=skip
3-single-conv-lars-sync-skip-resume              | 3           | classifier conv stop=4 | communicator=single_node lars=.01 sync_bn=1 nonfinite=skip scatter=shard
3-single-drop-sync-skip-adam-resume              | 3           | classifier drop adam=1 learning_rate=.001 subdivisions=2 stop=4 | communicator=single_node sync_bn=1 nonfinite=skip scatter=none
3-single-mlp-local                               | 3           | classifier mlp | communicator=single_node overlap=off local_steps=2 scale_lr=linear
3-single-yolo-local                              | 3           | detector yolo | communicator=single_node overlap=off local_steps=2 batch=global scatter=none
+ 2-shm-drop-sync-skip-adam                      | 2           | classifier drop adam=1 learning_rate=.001 | communicator=shm overlap=off sync_bn=1 nonfinite=skip
2-shm-mlp-lars-sync-skip-resume                  | 2           | classifier mlp subdivisions=2 stop=4 | communicator=shm overlap=off lars=.01 sync_bn=1 nonfinite=skip batch=global scatter=none
3-shm-wide-local                                 | 3           | classifier wide | communicator=shm local_steps=2 scale_lr=linear scatter=shard
2-auto-drop-fp16-overlap-adam                    | 2           | classifier drop adam=1 learning_rate=.001 subdivisions=2 | compress=fp16 overlap=on CMN_DEBUG_BUCKET_MB=0.01 scatter=shard
2-auto-wide-bf16-local-double                    | 2           | classifier wide | compress=bf16 double_buffering=1 local_steps=3 scatter=none
2-auto-yolo-fp16-local                           | 2           | detector yolo subdivisions=2 | compress=fp16 overlap=off local_steps=2 batch=global

# The same on several.
1+1+1-naive-mlp-local-resume                     | 1+1+1       | classifier mlp stop=4 | communicator=naive local_steps=2 scale_lr=linear
1+1-naive-conv-local                             | 1+1         | classifier conv | communicator=naive overlap=off local_steps=2 scatter=none
2+1-naive-wide-sync-adam-resume                  | 2+1         | classifier wide adam=1 learning_rate=.001 subdivisions=2 stop=4 | communicator=naive overlap=off sync_bn=1 scatter=none
2+1-naive-yolo-adam                              | 2+1         | detector yolo adam=1 learning_rate=.001 subdivisions=2 | communicator=naive batch=global scatter=none
2+2-naive-drop-lars-sync-skip                    | 2+2         | classifier drop subdivisions=2 | communicator=naive overlap=off lars=.01 sync_bn=1 nonfinite=skip batch=global scatter=shard
+ 2+2-naive-mlp-local                            | 2+2         | classifier mlp subdivisions=2 | communicator=naive overlap=off local_steps=2 batch=global scatter=shard
+ 1+1+1-flat-drop-bf16-overlap-adam-resume       | 1+1+1       | classifier drop adam=1 learning_rate=.001 subdivisions=2 stop=4 | communicator=flat compress=bf16 overlap=on CMN_DEBUG_BUCKET_MB=0.01
1+1+1-flat-drop-powersgd-local-double-resume     | 1+1+1       | classifier drop stop=4 | communicator=flat compress=powersgd overlap=off double_buffering=1 local_steps=3
1+1-flat-conv-bf16-double-lars-sync-skip         | 1+1         | classifier conv | communicator=flat compress=bf16 double_buffering=1 lars=.01 sync_bn=1 nonfinite=skip scale_lr=linear scatter=none
1+1-flat-mlp-fp16-local-resume                   | 1+1         | classifier mlp subdivisions=2 stop=4 | communicator=flat compress=fp16 overlap=off local_steps=2 batch=global
2+1-flat-wide-bf16-local-double                  | 2+1         | classifier wide subdivisions=2 | communicator=flat compress=bf16 overlap=off double_buffering=1 local_steps=3 scale_lr=linear scatter=shard
1+1+1-hier-conv-local-double-resume              | 1+1+1       | classifier conv subdivisions=2 stop=4 | communicator=hierarchical overlap=off double_buffering=1 local_steps=3 scatter=shard
1+1+1-hier-mlp-powersgd-local-double-resume      | 1+1+1       | classifier mlp subdivisions=2 stop=4 | communicator=hierarchical compress=powersgd double_buffering=1 local_steps=3 batch=global scatter=none
1+1+1-hier-yolo-fp16-sync-adam-resume            | 1+1+1       | detector yolo adam=1 learning_rate=.001 subdivisions=2 stop=4 | communicator=hierarchical compress=fp16 sync_bn=1 scale_lr=linear scatter=none
1+1-hier-wide-powersgd-double-lars-skip-resume   | 1+1         | classifier wide subdivisions=2 stop=4 | communicator=hierarchical compress=powersgd overlap=off double_buffering=1 lars=.01 nonfinite=skip
+ 2+1-hier-yolo-powersgd-overlap-sync-adam       | 2+1         | detector yolo adam=1 learning_rate=.001 | communicator=hierarchical compress=powersgd overlap=on CMN_DEBUG_BUCKET_MB=0.01 sync_bn=1 scale_lr=linear scatter=shard
2+2-hier-mlp-bf16-local                          | 2+2         | classifier mlp | communicator=hierarchical compress=bf16 overlap=off local_steps=2 batch=global scatter=none
1+1+1-2d-drop-fp16-double-sync                   | 1+1+1       | classifier drop | communicator=two_dimensional compress=fp16 overlap=off double_buffering=1 sync_bn=1 scale_lr=linear scatter=none
1+1-2d-wide-fp16-local-resume                    | 1+1         | classifier wide stop=4 | communicator=two_dimensional compress=fp16 local_steps=2 batch=global scatter=shard
2+1-2d-mlp-fp16-lars-sync-skip-resume            | 2+1         | classifier mlp subdivisions=2 stop=4 | communicator=two_dimensional compress=fp16 lars=.01 sync_bn=1 nonfinite=skip scatter=shard
+ 2+2-2d-conv-fp16-local-double                  | 2+2         | classifier conv | communicator=two_dimensional compress=fp16 overlap=off double_buffering=1 local_steps=3 batch=global
2+2-2d-wide-overlap-sync-adam-resume             | 2+2         | classifier wide adam=1 learning_rate=.001 stop=4 | communicator=two_dimensional overlap=on CMN_DEBUG_BUCKET_MB=0.01 sync_bn=1 scale_lr=linear scatter=none
1+1+1-shm-yolo-skip-adam                         | 1+1+1       | detector yolo adam=1 learning_rate=.001 | communicator=shm overlap=off nonfinite=skip scatter=none
1+1-shm-mlp-fp16-overlap-sync-adam-resume        | 1+1         | classifier mlp adam=1 learning_rate=.001 stop=4 | communicator=shm compress=fp16 overlap=on CMN_DEBUG_BUCKET_MB=0.01 sync_bn=1 scale_lr=linear scatter=none
2+2-shm-conv-powersgd-local                      | 2+2         | classifier conv subdivisions=2 | communicator=shm compress=powersgd local_steps=2 scatter=none
2+2-shm-yolo-bf16-local-double-resume            | 2+2         | detector yolo subdivisions=2 stop=4 | communicator=shm compress=bf16 double_buffering=1 local_steps=3 scale_lr=linear scatter=none
TABLE
}

# A net: which [net] it has, then its layers.
declare -A nets=(
    [mlp]='digits; connected output=16 activation=relu; connected output=10 activation=linear; softmax'
    [conv]='digits; convolutional filters=6 size=5 stride=2 pad=1 batch_normalize=1 activation=leaky;
        convolutional filters=8 size=3 stride=2 pad=1 batch_normalize=1 activation=leaky;
        connected output=20 batch_normalize=1 activation=relu; connected output=10 activation=linear; softmax'
    [drop]='digits; convolutional filters=4 size=5 stride=1 pad=1 activation=relu; maxpool size=2 stride=2;
        convolutional filters=6 size=3 stride=1 pad=1 activation=relu; maxpool size=2 stride=2; dropout probability=.3;
        connected output=10 activation=linear; softmax'
    [wide]='digits; connected output=400 activation=relu; connected output=10 activation=linear; softmax'
    [huge]='digits max_batches=3; connected output=1500 activation=relu; connected output=10 activation=linear; softmax'
    [routes]='digits; convolutional filters=4 size=3 stride=2 pad=1 batch_normalize=1 activation=leaky;
        convolutional filters=4 size=3 stride=1 pad=1 activation=tanh; shortcut from=-2 activation=linear;
        maxpool size=2 stride=2; upsample stride=2; route layers=-1,2; reorg stride=2; avgpool;
        connected output=10 activation=linear; softmax'
    [layers]='digits decay=0.01; convolutional filters=4 size=5 stride=3 activation=tanh;
        local filters=2 size=3 stride=2 pad=1 activation=tanh;
        deconvolutional filters=2 size=2 stride=2 activation=tanh; connected output=10 activation=linear; softmax'
    [yolo]='colours; convolutional filters=6 size=3 stride=2 pad=1 batch_normalize=1 activation=leaky;
        convolutional filters=8 size=3 stride=2 pad=1 activation=leaky;
        convolutional filters=14 size=3 stride=2 pad=1 activation=linear;
        yolo mask=0,1 anchors=8,8,16,16 classes=2 num=2 ignore_thresh=.5 truth_thresh=1 jitter=.2'
    [random]='colours batch=2 learning_rate=1e-6; convolutional filters=4 size=3 stride=8 pad=1 activation=leaky;
        convolutional filters=6 size=3 stride=4 pad=1 activation=leaky;
        convolutional filters=14 size=3 stride=2 pad=1 activation=linear;
        yolo mask=0,1 anchors=8,8,16,16 classes=2 num=2 ignore_thresh=.5 truth_thresh=1 jitter=.2 random=1'
    [region]='colours; convolutional filters=6 size=3 stride=2 pad=1 activation=tanh;
        convolutional filters=8 size=3 stride=2 pad=1 activation=tanh;
        convolutional filters=14 size=3 stride=2 pad=1 activation=linear;
        region anchors=1,1,2,2 classes=2 coords=4 num=2 softmax=1 jitter=.2 rescore=1 object_scale=5 noobject_scale=1 class_scale=1
        coord_scale=1 thresh=.6 max=12'
    [grid]='colours; convolutional filters=6 size=3 stride=2 pad=1 activation=tanh;
        convolutional filters=8 size=3 stride=2 pad=1 activation=tanh; connected output=192 activation=linear;
        detection classes=2 coords=4 rescore=1 side=4 num=2 sqrt=1 softmax=0 forced=0 jitter=.2 object_scale=1 noobject_scale=.5
        class_scale=1 coord_scale=5'
    [numbers]='colours; convolutional filters=6 size=3 stride=2 pad=1 activation=tanh; connected output=2 activation=linear;
        cost type=sse'
    [spoilt]='colours batch=4; convolutional filters=6 size=3 stride=2 pad=1 batch_normalize=1 activation=tanh;
        connected output=2 activation=linear; cost type=sse'
    [tags]='colours; convolutional filters=6 size=3 stride=2 pad=1 activation=tanh; connected output=8 activation=logistic;
        cost type=sse'
    [masks]='colours; convolutional filters=6 size=3 stride=2 pad=1 activation=tanh;
        convolutional filters=80 size=3 stride=2 pad=1 activation=linear; logistic'
    [objects]='colours; convolutional filters=6 size=3 stride=2 pad=1 activation=tanh;
        convolutional filters=84 size=3 stride=2 pad=1 activation=linear; iseg classes=80 ids=4'
    [larger]='colours height=7 width=7; convolutional filters=48 size=3 stride=1 pad=1 activation=linear; reorg stride=4 reverse=1;
        cost type=sse'
    [cifar]='colours; convolutional filters=6 size=3 stride=2 pad=1 activation=tanh; connected output=10 activation=linear; softmax'
)
common='subdivisions=1 momentum=0.9 decay=0.0005 policy=constant threads=2'
declare -A bases=(
    [digits]="batch=20 height=28 width=28 channels=1 min_crop=28 max_crop=28 angle=7 hue=0 saturation=1 exposure=1 aspect=1 flip=0
        learning_rate=0.02 max_batches=9 $common"
    [colours]="batch=12 height=32 width=32 channels=3 min_crop=28 max_crop=40 angle=5 hue=.1 saturation=1.5 exposure=1.5 aspect=1.2
        flip=1 learning_rate=0.002 max_batches=8 $common"
)

# cfg NET CHANGE...: the text of a cfg.
cfg() {
    local parts part words net=$1
    shift
    IFS=';' read -r -d '' -a parts <<<"${nets[$net]}" || true
    read -ra words <<<"${parts[0]}"
    # Of the changes, what the net says, and what its kind says the first one counts.
    printf '[net]\n'
    # shellcheck disable=SC2086  # several words
    printf '%s\n' "$@" "${words[@]:1}" ${bases[${words[0]}]} | awk -F = 'NF && !had[$1]++'
    for part in "${parts[@]:1}"; do
        read -r -d '' -a words <<<"$part" || true
        printf '[%s]\n' "${words[0]}"
        ((${#words[@]} == 1)) || printf '%s\n' "${words[@]:1}"
    done
}

# ---- Data ----------------------------------------------------------------------------------------------------

# Made in the current folder: digits of MNIST, and what the other drivers look for beside pictures, made up.
data() {
    local i name path folder kind
    ln -s "$MNIST" mnist
    sed -n '1,240 s|^data/||p' mnist/train.list >train.list
    sed -n '1,40 s|^data/||p' mnist/valid.list >valid.list
    printf 'digit-%d\n' 0 1 2 3 4 5 6 7 8 9 >labels.txt
    printf '%s\n' classes=10 train=train.list valid=valid.list labels=labels.txt names=labels.txt backup=out top=2 >digits.data

    mkdir -p images labels mask numbers/images numbers/labels tags/images tags/labels
    i=0
    while IFS= read -r path; do
        name=$(printf '%02d' $i)
        for folder in images numbers/images tags/images; do
            ln -s "$MNIST/${path#mnist/}" $folder/"$name".png
        done
        awk -v i=$i 'BEGIN { for (k = 0; k <= i % 3; k++)
            printf "%d %.3f %.3f %.3f %.3f\n", k % 2, .3 + .2 * k + i % 3 * .02, .3 + .2 * k, .3 + .05 * (i % 4), .3 }' \
            >labels/"$name".txt
        printf '%d %s\n' $((i % 3)) "100,$((i * 4 + 40)),200,60" $((i % 3 + 1)) 400,100 >mask/"$name".txt
        printf '0.%d\n0.5\n' $i >numbers/labels/"$name".txt
        printf '%d\n' $((i % 5)) $((i % 3 + 5)) >tags/labels/"$name".txt
        i=$((i + 1))
    done < <(head -n 24 train.list)
    cp -r numbers spoilt
    printf '1e30\n0.5\n' >spoilt/labels/07.txt    # its loss is infinite
    printf '%s\n' one two >names
    for kind in boxes numbers spoilt tags; do
        folder=$kind/
        [[ $kind != boxes ]] || folder=
        for name in "${folder}"images/*; do
            echo "$name"
        done >$kind.list
        printf '%s\n' classes=2 train=$kind.list valid=$kind.list names=names results=results backup=out >$kind.data
    done

    for i in 0 1 2; do
        awk -v s=$i 'BEGIN { for (i = 0; i < 8; i++) { printf "%c", i + 1
            for (j = 0; j < 3072; j++) { s = (s * 25173 + 13849) % 65536; printf "%c", 1 + int(s / 520) } } }' >cifar$i.bin
    done
    ls cifar?.bin >cifar.list
    printf '%s\n' train=cifar.list backup=out >cifar.data
    # Darknet without -cmn seeds its random numbers by the clock.
    printf '#include <time.h>\ntime_t time(time_t *t)\n{\n    if (t) *t = 1;\n    return 1;\n}\n' >time.c
    "$CC" -shared -fPIC -O1 -w -o time.so time.c
}

# ---- One run -------------------------------------------------------------------------------------------------

# words DRIVER NET: sets the array words to the command that trains it.
words() {
    case $1 in
        classifier) words=(classifier train digits.data "$2.cfg") ;;
        detector | segmenter | isegmenter) words=("$1" train boxes.data "$2.cfg") ;;
        regressor) words=("$1" train "$2.data" "$2.cfg") ;;
        tag) words=(tag train "$2.cfg" -data tags.data) ;;
        cifar) words=("$1" train "$2.cfg" -data cifar.data) ;;
        *) words=("$1" train "$2.cfg" -data boxes.data) ;;
    esac
}

# darknet RANKS ARGUMENTS...: program and stand_in are those of one side; debug has its variables.
darknet() {
    local ranks=$1 job given=${#mpiexec[@]} limited=(env "${debug[@]}" timeout --kill-after=5 "$LIMIT") mpiexec=("${mpiexec[@]}") variable
    shift
    for variable in "${debug[@]}"; do
        mpiexec+=(-x "${variable%%=*}")
    done
    case $ranks in
        plain) "${limited[@]}" env LD_PRELOAD="$PWD/time.so" "$program" "$@" ;;
        alone) "${limited[@]}" "$program" "$@" -cmn ;;
        gpu:*) FAKE_GPUS=${ranks#gpu:} "${limited[@]}" "${mpiexec[@]}" -n "${ranks#gpu:}" "$stand_in" "$@" -cmn ;;
        *+*)
            cluster_job "$ranks"
            "${limited[@]}" "${job[@]}" "${mpiexec[@]:$given}" "$program" "$@" -cmn
            ;;
        *) "${limited[@]}" "${mpiexec[@]}" -n "$ranks" "$program" "$@" -cmn ;;
    esac
}

# plan: from ranks, command and keys of an entry, all that is run: ranks, driver, net, changes, stop, back, from, evaluate, keyed, debug.
plan() {
    local word had=' '
    read -r first second <<<"${ranks/>/ }"
    second=${second:-$first}
    read -ra words <<<"$command"
    driver=${words[0]} net=${words[1]} changes=() stop='' back='' from='' evaluate='' keyed=() debug=()
    for word in "${words[@]:2}"; do
        case $word in
            stop=*) stop=${word#*=} ;;
            back=*) back=${word#*=} ;;
            from=*) from=${word#*=} ;;
            then=*) evaluate=${word#*=} ;;
            *) changes+=("$word") ;;
        esac
    done
    read -ra words <<<"$keys"
    case "$ranks $keys" in
        plain*) words=() ;;
        *bare*) words=("${words[@]#bare}" seed=7) ;;
        *) words+=(seed=7 batch=per_rank validate=0 report_every=3) ;;
    esac
    for word in "${words[@]}"; do
        [[ -n $word && $had != *" ${word%%=*} "* ]] || continue
        had+="${word%%=*} "
        [[ $word != CMN_DEBUG_* ]] || { debug+=("$word"); continue; }
        keyed+=("-cmn_${word%%=*}" "${word#*=}")
    done
    [[ -z $stop$back || $had == *' checkpoint '* ]] || keyed+=(-cmn_checkpoint "$stop$back") debug+=(CMN_DEBUG_CHECKPOINT_KEEP=9)
    words "$driver" "$net"
}

# final: the weights that the training in the current folder ended with.
final() {
    find out -name "$net.weights" -o -name "${net}_final.weights"
}

# run_entry: trains and evaluates in the current folder.
run_entry() {
    local weights=()
    # shellcheck disable=SC2154  # data: of the caller
    ln -s "$data"/* .
    mkdir -p out results
    if [[ -n $stop$back$from ]]; then
        cfg "$net" ${stop:+"max_batches=$stop"} ${from:+"max_batches=$from"} "${changes[@]}" >"$net.cfg"
        darknet "$first" "${words[@]}" "${keyed[@]}" >first.txt 2>first.err
    fi
    if [[ -n $back ]]; then
        rm out/*.weights
        find out -name '*.checkpoint' -printf '%T@ %p\n' | sort -n | sed '1d; s/^[^ ]* //' | xargs -d '\n' rm -r
    fi
    [[ -z $from ]] || weights=("$(final)")
    cfg "$net" "${changes[@]}" >"$net.cfg"
    darknet "$second" "${words[@]}" "${weights[@]}" "${keyed[@]}" >train.txt 2>train.err
    [[ -n $evaluate ]] || return 0
    case $driver in
        classifier) words=(classifier "$evaluate" digits.data) ;;
        *) words=(detector "$evaluate" boxes.data) ;;
    esac
    words+=("$net.cfg" "$(final)")
    [[ $evaluate != map ]] || words+=(-json out/map.json)
    darknet "$second" "${words[@]}" >evaluate.txt 2>evaluate.err
}

# collect: what is compared of the current folder goes to kept/.
collect() {
    local file
    mkdir kept
    cp "$(final)" kept
    # What was saved on the way there.
    find out -name '*.weights' ! -path "$(final)" | sort | xargs -r sha256sum >kept/saved.txt
    for file in out/*.json; do
        [[ ! -f $file ]] || jq 'walk(if type == "object" then with_entries(select(.key |
            test("time|/s$|^share/|^ranks$|^straggler$|memory|host|version|path|seconds") | not)) else . end)' "$file" >"kept/${file##*/}"
    done
    [[ -z $(ls results) ]] || cp results/* kept
    if [[ $first == plain ]]; then
        # A line for each step, with its loss.
        { grep ' avg, ' train.txt || true; } | sed -E 's/[0-9.e-]+ seconds/seconds/' >kept/losses.txt
    fi
    if [[ -n $evaluate ]]; then
        sed -E '/^Loaded: /d; /^Too many or too few labels/d; s/[0-9.e-]+ [sS]econds//' evaluate.txt >kept/evaluate.txt
        { grep RPs/Img evaluate.err || true; } >>kept/evaluate.txt
    fi
}

# run_side SIDE FOLDER: the entry in that new folder, with the program of that side. Sets status. One more attempt is made
# where a run fails: on a machine with a load of 20, Open MPI's daemons were seen to wait for a signal.
run_side() {
    local program=$DARKNET stand_in=$STAND_IN attempt
    if [[ $1 == ref || -n $AGAIN ]]; then
        program=$ref/bin/darknet stand_in=$ref/bin/stand-in
    fi
    for attempt in 1 2; do
        rm -rf "$2"
        mkdir "$2"
        # Not in a condition: there bash would not stop at the first error.
        set +e
        (
            set -e
            cd "$2"
            plan
            run_entry
            collect
        ) 2>"$2.err"
        status=$?
        set -e
        ((status != 0)) || return 0
        ((attempt == 2)) || echo "  $name failed with status $status, once more: $(why "$2")"
    done
}

# why FOLDER: the last thing that a run has said.
why() {
    { grep -h '^cmn\[' "$1"/*.err || cat "$1"/{first,train,evaluate}.err "$1.err"; } 2>/dev/null | tail -n 1 | cut -c 1-200 || true
}

# ---- Comparison ----------------------------------------------------------------------------------------------

# how A B: in what two files differ.
how() {
    local a b
    if [[ $1 == *.weights ]]; then
        a=$(stat -c %s "$1") b=$(stat -c %s "$2")
        ((a == b)) || { echo "$a and $b bytes"; return; }
        paste <(od -A n -v -w4 -t f4 "$1") <(od -A n -v -w4 -t f4 "$2") | awk '
            { d = $1 - $2; n += $1 != $2; sum += d * d; whole += $1 * $1; if ($1 != $2 && !first) first = NR }
            END { printf "%d of %d words, first %d, relative L2 %.2g", n, NR, first - 1, whole ? sqrt(sum / whole) : sum }'
    else
        diff "$1" "$2" | grep '^[<>]' | head -n 2 | tr -s '\n\t ' ' ' | cut -c 1-200
    fi
}

# compare A B: prints in what two folders differ, nothing where they are equal.
compare() {
    local file
    while IFS= read -r file; do
        if [[ ! -f $1/$file ]]; then
            echo "file $file is new"
        elif [[ ! -f $2/$file ]]; then
            echo "file $file is missing"
        elif ! cmp -s "$1/$file" "$2/$file"; then
            echo "file $file differs ($(how "$1/$file" "$2/$file"))"
        fi
    done < <({ ls "$1" && ls "$2"; } | sort -u)
}

# What an entry's results hang on: what is run, how it is run and looked at, on what.
key() {
    (plan && echo "$first $second $net stop=$stop back=$back from=$from evaluate=$evaluate ${words[*]} ${keyed[*]}${debug[*]:+ ${debug[*]}}" && cfg "$net" "${changes[@]}")
    declare -f darknet run_entry collect
    cat "$work/machine"
}

# entry LINE: one line of output, and how it went into the file of its name.
entry() {
    local name ranks command keys first second driver net changes stop back from evaluate keyed words recorded reason said='' status
    IFS='|' read -r name ranks command keys <<<"${1#+}"
    read -r name <<<"$name"
    read -r ranks <<<"$ranks"
    reason=''
    if [[ $ranks == *+* && -n $cluster_why ]]; then
        reason=$cluster_why
    elif [[ $ranks == gpu:* && ! -x $ref/bin/stand-in ]]; then
        reason='REF has no stand-in for CUDA'
    fi
    if [[ -n $reason ]]; then
        echo "skipped $name: $reason" | tee "$work/said/$name"
        return
    fi
    key >"$work/$name.key"
    recorded=$ref/results/$name-$(sha256sum <"$work/$name.key" | cut -c 1-12)
    if [[ ! -d $recorded ]]; then
        run_side ref "$work/$name.ref"
        if ((status == 0)); then
            mkdir -p "$ref/results"
            mv -T "$work/$name.ref/kept" "$recorded" 2>/dev/null || true    # another call was quicker
            rm -rf "$work/$name.ref"
        else
            said="REF fails: $(why "$work/$name.ref")"
        fi
    fi
    if [[ -z $said ]]; then
        run_side now "$work/$name.now"
        if ((status == 0)); then
            said=$(compare "$recorded" "$work/$name.now/kept")
        else
            said="it fails: $(why "$work/$name.now")"
        fi
    fi
    if [[ -z $said ]]; then
        rm -rf "$work/$name.now" "$work/$name".*err
        echo "equal $name" | tee "$work/said/$name"
        return
    fi
    echo "DIFFERENT $name: ${said//$'\n'/; }" | tee "$work/said/$name"
}

# ---- REF's program -------------------------------------------------------------------------------------------

# Its source is unpacked, not checked out, so that no clone needs to know of it. Darknet's own need not be fetched twice.
build_ref() {
    local stamp
    stamp="$commit, $("$CC" --version | head -n 1)"
    exec {lock}>"$ref.lock"
    flock "$lock"
    if [[ $(cat "$ref/built" 2>/dev/null) != "$stamp" ]]; then
        echo "building $commit in $ref"
        rm -rf "$ref"
        mkdir -p "$ref/tree/build" "$ref/bin"
        git archive "$commit" | tar -x -C "$ref/tree"
        [[ ! -d build/upstream ]] || cp -r build/upstream "$ref/tree/build"
        make -C "$ref/tree" all >"$ref/make.log" 2>&1 || { tail -n 20 "$ref/make.log"; return 1; }
        cp "$ref/tree/bin/darknet" "$ref/bin/darknet"
        ! make -C "$ref/tree" build/cpu/fake/bin/darknet-without-cudnn >>"$ref/make.log" 2>&1 ||
            cp "$ref/tree/build/cpu/fake/bin/darknet-without-cudnn" "$ref/bin/stand-in"
        rm -rf "$ref/tree"
        echo "$stamp" >"$ref/built"
    fi
    exec {lock}>&-
}

# ---- All of it -----------------------------------------------------------------------------------------------

[[ -n ${REF:-} ]] || { echo 'same-bits: which commit? make same-bits REF=commit' >&2; exit 2; }
[[ -f $MNIST/train.list ]] || { echo 'same-bits: data/mnist is missing: make mnist' >&2; exit 2; }
command -v jq >/dev/null || { echo 'same-bits: jq is not installed' >&2; exit 2; }
commit=$(git rev-parse --verify --quiet "$REF^{commit}") || { echo "same-bits: $REF is no commit" >&2; exit 2; }
mkdir -p "$SAME_BITS_DIR"
SAME_BITS_DIR=$(cd "$SAME_BITS_DIR" && pwd)
ref=$SAME_BITS_DIR/$commit
work=$(mktemp -d "$SAME_BITS_DIR/run-XXXXXX")
finish() {
    cluster_down
    [[ -n ${keep:-} ]] || rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

build_ref
data=$work/data
mkdir "$data" "$work/said"
(cd "$data" && data)
{
    grep -m 1 '^model name' /proc/cpuinfo || true
    grep -m 1 '^flags' /proc/cpuinfo | sha256sum
    ldd "$ref/bin/darknet" | awk '/openblas|libmpi|libm\.so|libc\.so/ { print $3 }' | xargs -r realpath
    (cd "$data" && find . -type f ! -name time.so -print0 | sort -z | xargs -0 sha256sum && cat train.list valid.list | xargs cat) | sha256sum
} >"$work/machine"

selected=()
while IFS= read -r line; do
    [[ -n $line && $line != \#* ]] || continue
    [[ $SAME != fast || $line == +* ]] || continue
    read -r name _ <<<"${line#+}"
    if [[ -n $ONLY ]]; then
        wanted=
        for word in $ONLY; do
            # shellcheck disable=SC2053  # a pattern
            [[ $name != *$word* ]] || wanted=1
        done
        [[ -n $wanted ]] || continue
    fi
    selected+=("$line")
done < <(entries)
((${#selected[@]})) || { echo "same-bits: no entry has such a name: $ONLY" >&2; exit 2; }

cluster_why=
if printf '%s\n' "${selected[@]}" | cut -d '|' -f 2 | grep '+' >/dev/null; then # with -q it may end before cut, whose status counts
    cluster_up 3 || true
fi
# By process id: `wait` alone would wait for the cluster, too.
declare -A running=()
reap() {
    local pid
    wait -n "${!running[@]}" || true
    for pid in "${!running[@]}"; do
        kill -0 "$pid" 2>/dev/null || unset "running[$pid]"
    done
}
for line in "${selected[@]}"; do
    while ((${#running[@]} >= SAME_JOBS)); do reap; done
    entry "$line" </dev/null &
    running[$!]=1
done
while ((${#running[@]})); do reap; done

count() { cat "$work"/said/* | grep -c "^$1 " || true; }
equal=$(count equal) skipped=$(count skipped)
different=$((${#selected[@]} - equal - skipped))
if ((different)); then
    keep=1
    echo "what differs is in $work"
fi
echo "$equal entries equal, $different differ, $skipped skipped ($SECONDS s)"
((different == 0))
