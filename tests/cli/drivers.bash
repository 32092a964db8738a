# shellcheck shell=bash
# Data and cfgs for every command of Darknet that trains.

# Pictures of digits with what each trainer looks for beside them: boxes, numbers, tags, masks. Made up, but for the
# pictures: what is compared is arithmetic.
make_data() {
    local kind
    mkdir -p images labels mask numbers/labels tags/labels
    ln -s ../images numbers/images
    ln -s ../images tags/images
    awk -v here="$PWD" '{
        i = NR - 1
        name = sprintf("%02d", i)
        printf "ln -s \047%s/%s\047 images/%s.png\n", here, $0, name
        for (k = 0; k <= i % 3; k++)
            printf "%d %.3f %.3f %.3f %.3f\n", (i + k) % 2, .2 + .2 * k + i % 5 * .03, .3 + .15 * k, .2 + .1 * (i % 4), .3 >"labels/" name ".txt"
        printf "%d 100,%d,200,60\n%d 400,100\n", i % 3, i * 4 + 40, i % 3 + 1 >"mask/" name ".txt"
        printf "0.%d\n0.5\n", i >"numbers/labels/" name ".txt"
        printf "%d\n%d\n", i % 5, i % 3 + 5 >"tags/labels/" name ".txt"
    }' train.list | sh
    ln -s . data
    for kind in data numbers tags; do
        (cd $kind && ls images) | sed "s|^|$kind/images/|" >$kind.list
        printf '%s\n' classes=2 train=$kind.list backup=out >$kind.data
    done
}

# Three files of CIFAR-10's kind: a byte for the class and 3072 for the colours; and what `distill` is to learn of them.
make_cifar() {
    for i in 0 1 2; do
        LC_ALL=C awk -v seed=$i 'BEGIN { srand(seed); for (i = 0; i < 8; i++) {
            printf "\\%03o", i; for (j = 0; j < 3072; j++) printf "\\%03o", 255 * rand() } }' >cifar.txt
        # shellcheck disable=SC2059  # the bytes are a format
        printf "$(<cifar.txt)" >cifar$i.bin
    done
    ls cifar?.bin >cifar.list
    printf '%s\n' train=cifar.list backup=out >cifar.data
    mkdir -p results
    awk 'BEGIN { for (i = 0; i < 24; i++) { for (j = 0; j < 10; j++) printf "%s%.2f", j ? "," : "", (i * j % 7) / 7; print "" } }' \
        >results/ensemble.csv
}

# net KEY=VALUE...: colour pictures, changed in all ways that the loaders know.
net() {
    net_section batch=12 width=32 height=32 channels=3 hue=.1 saturation=1.5 exposure=1.5 flip=1 min_crop=28 max_crop=40 \
        angle=5 aspect=1.2 learning_rate=0.002 max_batches=10 "$@"
}

conv() {
    printf '%s\n' '[convolutional]' "filters=$1" size=3 "stride=$2" pad=1 "activation=${3:-tanh}"
}

yolo() {
    printf '%s\n' '[yolo]' mask=0,1 anchors=8,8,16,16 classes=2 num=2 ignore_thresh=.5 truth_thresh=1 "$@"
}

yolo_cfg() {
    net "$@"
    conv 6 2 && conv 8 2 && conv 14 2 linear && yolo jitter=.2
}

region_cfg() {
    net "$@"
    conv 6 2 && conv 8 2 && conv 14 2 linear
    printf '%s\n' '[region]' anchors=1,1,2,2 classes=2 coords=4 num=2 softmax=1 jitter=.2 rescore=1 object_scale=5 \
        noobject_scale=1 class_scale=1 coord_scale=1 thresh=.6 max=12
}

grid_cfg() {
    net
    conv 6 2 && conv 8 2
    printf '%s\n' '[connected]' output=192 activation=linear '[detection]' classes=2 coords=4 rescore=1 side=4 num=2 sqrt=1 softmax=0 forced=0 \
        jitter=.2 object_scale=1 noobject_scale=.5 class_scale=1 coord_scale=5
}

# end_cfg OUTPUTS ACTIVATION LAST...
end_cfg() {
    net
    conv 6 2 && conv 8 2
    printf '%s\n' '[connected]' "output=$1" "activation=$2" "${@:3}"
}

mask_cfg() {
    net
    conv 6 2 && conv "$1" 2 linear
    printf '%s\n' "${@:2}"
}

# The weights that a training ends with.
result() {
    find out -name '*_final.weights' -o -name "$1.weights" | sed -n 1p
}
