#!/usr/bin/env bash
# Trains each cfg that Darknet ships for two iterations on NP=2 ranks, on generated images and labels of its
# shape. One line of TAP each.
#
#   tests/upstream-cfgs.sh [--full] [NAME...]    NAME is that of a cfg, without .cfg; none: all of them
#   tests/upstream-cfgs.sh --list              the table
#
# Without --full a cfg is made thin first: an eighth of its filters and outputs, but where a loss layer prescribes them,
# small images, batch 2. With --full it is trained as it is, but for the batch: one image a micro-batch and rank, or a step
# takes hours.
# Environment: DARKNET (the program), SOURCE (Darknet's source), MPIEXEC, CC, WORK (an empty folder, kept), LIMIT (seconds
# for each).
set -euo pipefail
export LC_ALL=C

# shellcheck source=tests/environment.bash
. "$(dirname "${BASH_SOURCE[0]}")/environment.bash"
: "${SOURCE:=$REPO/build/darknet}" "${LIMIT:=60}"

# NAME COMMAND SIDE CLASSES [REASON]: side of a thin cfg's images. A cfg without command is one that nothing trains with
# several ranks. go train draws its moves anew in each process and is refused; its nets are trained
# as classifiers. `none` is a net without a loss layer, for nightmare alone, and `state` one whose layers keep a state between
# steps: a training has to say so.
table() {
    cat <<'EOF'
alexnet             classifier 67  1000
cifar               classifier 28  10
cifar.test          classifier 32  10
darknet             classifier 64  1000
darknet19           classifier 64  1000
darknet19_448       classifier 64  1000
darknet53           classifier 64  1000
darknet53_448       classifier 64  1000
darknet9000         classifier 64  9418
densenet201         classifier 64  1000
extraction          classifier 64  1000
extraction.conv     classifier 64  1000
extraction22k       classifier 64  21842
go                  classifier 19  362
go.test             classifier 19  362
gru                 state      10  256
jnet-conv           none       10  128
resnet101           classifier 64  1000
resnet152           classifier 64  1000
resnet18            classifier 64  1000
resnet34            classifier 64  1000
resnet50            classifier 64  1000
resnext101-32x4d    classifier 64  1000
resnext152-32x4d    classifier 64  1000
resnext50           classifier 64  1000
rnn                 state      10  256
rnn.train           state      10  256
strided             classifier 72  1000
t1.test             yolo       64  20
tiny                classifier 64  1000
vgg-16              classifier 72  1000
vgg-conv            none       64  256
writing             -          64  -     upstream's writing command is not part of its own build
yolo9000            detector   64  9418
yolov1              yolo       64  20
yolov1-tiny         yolo       64  20
yolov2              detector   64  80
yolov2-tiny         detector   64  80
yolov2-tiny-voc     detector   64  20
yolov2-voc          detector   64  20
yolov3              detector   64  80
yolov3-openimages   detector   64  601
yolov3-spp          detector   64  80
yolov3-tiny         detector   64  80
yolov3-voc          detector   64  20
EOF
}

# thin SIDE <CFG: an eighth of what no loss layer prescribes. The last layer with filters or outputs before one keeps
# them, and so does a local response to groups.
thin() {
    awk -v side="$1" '
        function eighth(n) { return n > 8 ? int(n / 8) : n }
        function value(line) { sub(/^[^=]*=[ \t]*/, "", line); return line + 0 }
        /^[ \t]*(#|;|$)/ { next }
        { line[++n] = $0; key[n] = $0; sub(/[ \t]*=.*/, "", key[n]) }
        /^\[(softmax|cost|detection|region|yolo)/ { if (width) keeps[width] = 1 }
        key[n] ~ /^(filters|output)$/ { width = n }
        END {
            for (i = 1; i <= n; i++) {
                if (key[i] ~ /^(filters|output|groups)$/ && !(i in keeps))
                    print key[i] "=" eighth(value(line[i]))
                else if (key[i] ~ /^(height|width)$/) print key[i] "=" side
                else if (key[i] ~ /^crop_(height|width)$/) print key[i] "=64"
                else if (key[i] == "random") print "random=0"
                else print line[i]
            }
        }'
}

# with_keys KEY=VALUE... <CFG: the first section has these keys, each once.
with_keys() {
    local pair drop=
    for pair in "$@"; do drop+="|${pair%%=*}"; done
    awk -v drop="^(${drop#|})[ \t]*=" -v add="$(printf '%s\n' "$@")" '
        NR > 1 && first && $0 ~ drop { next }
        /^\[/ { first = !seen++ }
        { print }
        /^\[/ && first { print add }'
}

# net_key KEY CFG: its value in the first section.
net_key() {
    awk -F '[ \t]*=[ \t]*' -v key="$1" '/^\[/ && seen++ { exit } $1 == key { value = $2 } END { print value }' "$2"
}

# images SIDE CHANNELS: 8 images, with a box each, and train.list.
images() {
    local file
    rm -rf images labels
    mkdir images labels
    ./make_images images 8 "$1" "$2"
    for file in images/*.png; do
        file=${file##*/}
        echo '0 0.5 0.5 0.4 0.4' >"labels/${file%.png}.txt"
    done
    find images -name '*.png' | sort >train.list
}

# data_file NAME CLASSES: names of classes that the images' names contain, and as many others as are wanted.
data_file() {
    awk -v n="$2" 'BEGIN { print "class0"; print "class1"; for (i = 2; i < n; i++) print "none-" i }' >"$1.labels"
    printf '%s\n' "classes=$2" 'train=train.list' "labels=$1.labels" "names=$1.labels" 'backup=out' >"$1.data"
}

# arguments NAME COMMAND: what the command is started with.
arguments() {
    case $2 in
        none | state) echo "classifier train $1.data $1.cfg" ;;
        classifier | detector) echo "$2 train $1.data $1.cfg" ;;
        yolo) echo "$2 train $1.cfg -data $1.data" ;;
    esac
}

# prepare NAME COMMAND SIDE CLASSES: NAME.cfg and its data in the current folder.
prepare() {
    local cfg=$SOURCE/cfg/$1.cfg side=$3 channels batch=2
    channels=$(net_key channels "$cfg")
    if ((full)) && [[ $2 != state ]]; then side=$(net_key height "$cfg") batch=1; fi
    if ((full)); then cat "$cfg"; else thin "$side" <"$cfg"; fi | with_keys "batch=$batch" subdivisions=1 max_batches=2 >"$1.cfg"
    data_file "$1" "$4"
    images "$side" "${channels:-3}"
}

# train NAME COMMAND SIDE CLASSES: prints nothing, or why it did not train.
train() {
    local status=0 args
    prepare "$@"
    read -ra args <<<"$(arguments "$1" "$2")"
    OPENBLAS_NUM_THREADS=1 timeout --kill-after=5 "$LIMIT" "${mpiexec[@]}" -n "$NP" "$DARKNET" "${args[@]}" -cmn -cmn_seed 7 \
        -cmn_validate 0 -cmn_verify 1 -cmn_batch per_rank >"$1.log" 2>&1 </dev/null || status=$?
    if [[ $2 == none || $2 == state ]]; then
        if ((!status)) || ! grep -aqe 'no layer of the network learns' -e '-cmn trains no ' "$1.log"; then echo "not refused: $(tail -n 1 "$1.log")"; fi
    elif ((status == 124 || status == 137)); then
        echo "no end within $LIMIT s"
    elif ((status)); then
        grep -aE '^cmn|rror' "$1.log" | tail -n 1 | grep . || echo "status $status"
    elif ! compgen -G 'out/*.weights' >/dev/null; then
        echo 'no weights were written'
    elif ! grep -Eq '"iteration":2,"main/loss":[0-9]' out/*.json; then
        echo "no loss of iteration 2: $(grep -o '"iteration".*"main/loss":[^,]*' out/*.json | tail -n 1)"
    fi
}

full=0
case ${1:-} in
    --full) full=1 && shift ;;
    --list) table && exit ;;
esac
wanted=" $* "
work=${WORK:-$(mktemp -d "${TMPDIR:-/tmp}/upstream-cfgs.XXXXXX")}
[[ -n ${WORK:-} ]] || trap 'rm -rf "$work"' EXIT
cd "$work"
"$CC" -std=c11 -O1 -isystem "$SOURCE/src" "$REPO/tests/patches/make_images.c" -o make_images -lm
ln -sfn "$SOURCE/data" data
count=0 failed=0
while read -r name command side classes reason; do
    [[ $# -eq 0 || $wanted == *" $name "* ]] || continue
    count=$((count + 1))
    rm -rf out
    mkdir -p out
    if [[ $command == none ]] && ((full)); then reason='it has no loss layer'; fi
    if [[ -n $reason ]]; then
        echo "ok $count - $name # SKIP $reason"
        continue
    fi
    began=$SECONDS
    said=$(train "$name" "$command" "$side" "$classes")
    if [[ -z $said ]]; then
        echo "ok $count - $name: $command, $((SECONDS - began)) s"
    else
        failed=$((failed + 1))
        echo "not ok $count - $name: $command: $said"
    fi
done < <(table)
echo "1..$count"
((failed == 0))
