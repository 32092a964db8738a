#!/usr/bin/env bats
# Every command that trains or evaluates, and those that look at what came of it, with arguments, files and networks that
# do not fit: one line and a status that is not 0, and neither a crash, nor a hang, nor a result.

load helpers

SOURCE=$REPO/build/darknet

setup() {
    enter_folder
}

# head_of SIDE CHANNELS
head_of() {
    printf '%s\n' '[net]' batch=2 "width=$1" "height=$1" "channels=$2" max_batches=1 threads=1 flip=0
}

conv_of() {
    printf '%s\n' '[convolutional]' "filters=$1" "stride=$2" size=3 pad=1 activation=linear
}

connected_of() {
    printf '%s\n' '[connected]' "output=$1" activation=linear
}

networks() {
    { head_of 32 3 && conv_of 4 2 && connected_of 4 && echo '[softmax]'; } >cls.cfg
    { head_of 32 1 && conv_of 4 2 && connected_of 4 && echo '[softmax]'; } >gray.cfg
    { head_of 32 3 && conv_of 14 4 && printf '%s\n' '[yolo]' mask=0,1 anchors=4,4,8,8 classes=2 num=2; } >yolo.cfg
    { head_of 32 3 && conv_of 12 2 && echo '[avgpool]'; } >tag.cfg
    { head_of 32 3 && connected_of 10; } >cifar.cfg
    { printf '%s\n' '[net]' inputs=256 && connected_of 256 && echo '[softmax]'; } >rnn.cfg
}

files() {
    { printf '\0\0\0\0\2\0\0\0\0\0\0\0' && head -c 4000000 /dev/zero; } >zero.weights
    { printf '\0\0\0\0\2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0' && head -c 4000000 < <(yes "$(printf '\001\001\300\177')" | tr -d '\n'); } >nan.weights
    head -c 30 zero.weights >cut.weights
    : >empty
    mkdir folder images labels results out cfg data
    ln -s "$SOURCE/data/labels" data/labels
    # What they hold counts, not what they are called.
    { printf 'P6 8 8 255\n' && head -c 192 /dev/urandom; } >images/a.png
    { printf 'P5 8 8 255\n' && head -c 64 /dev/urandom; } >gray.png
    { printf 'BM\0\0\0\0\0\0\0\0\66\0\0\0\50\0\0\0\10\0\0\0\10\0\0\0\1\0\40' && head -c 25 /dev/zero && head -c 256 /dev/urandom; } >alpha.png
    printf 'P6 1 1 255\nabc' >one.png
    { printf 'P6 1000000 1000000 255\n' && head -c 99 /dev/zero; } >huge.png
    echo text >text.png
    echo '0 .5 .5 .4 .4' >labels/a.txt
    echo images/a.png >list
    echo text.png >textlist
    printf '%s\n' a b c d >names
    printf '%s\n' classes=4 train=list valid=list test=list labels=names names=names results=results backup=out >cls.data
    sed 's/=list/=textlist/' cls.data >text.data
    ln -s ../cls.data cfg/coco.data
}

# workers: four folders with these files, for those that run side by side.
workers() {
    local n
    mkdir _files
    mv -- [!_]* _files/
    for n in 0 1 2 3; do
        cp -a _files "worker$n"
    done
}

# one_case PATTERN<TAB>ARGUMENT<TAB>...: `ok` means that it ends with 0. Its standard input is a word.
one_case() {
    local pattern words
    IFS=$'\t' read -r pattern words <<<"$1"
    IFS=$'\t' read -ra words <<<"$words"
    words=("${words[@]/#EMPTY/}")
    if [[ $pattern == ok ]]; then
        timeout --kill-after=5 "$HANG_LIMIT" "$DARKNET" "${words[@]}" >ok.out 2>ok.err <<<word || { echo "${words[*]}" && cat ok.err && return 1; }
    else
        fails_clearly "$pattern" "$DARKNET" "${words[@]}" <<<word
    fi
}

# side_by_side FILE: all cases in it. Prints those that are not as they should be.
side_by_side() {
    local n pid pids=() bad=0
    [[ -s $1 ]]
    mapfile -t cases <"$1"
    for n in 0 1 2 3; do
        (
            cd "worker$n" || exit 1
            for ((i = n; i < ${#cases[@]}; i += 4)); do
                one_case "${cases[i]}" >case.log 2>&1 || { printf '%s\n' "NOT SO: ${cases[i]}" && cat case.log; }
            done
        ) >"worker$n.log" 3>&- &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do
        wait "$pid" || bad=1
    done
    cat worker?.log
    echo "${#cases[@]} cases"
    ((!bad)) && ! grep -q '^NOT SO' worker?.log
}

# Lines of the table in Darknet's main that are commands, without their options.
commands() {
    sed -n '/^static char \*commands/,/^};/s/^ *"\(.*\)",$/\1/p' "$SOURCE/examples/darknet.c" | grep -Ev '^[a-z0-9]+ -'
}

@test "the table of arguments has every command that trains or evaluates, and their options" {
    {
        "$DARKNET" cmn list -tsv | awk -F '\t' '$1 == "commands" && $3 ~ /^(trains|evaluates)$/ { print $2 }'
        printf '%s\n' 'detector test' 'classifier predict'
    } | sort >commands.txt
    [[ $(wc -l <commands.txt) -ge 16 ]]
    commands | awk '{ print $1, $2 }' | sort | diff commands.txt -
    # … and every option that a driver looks for.
    grep -hvE '^ *//' "$SOURCE"/examples/{cifar,classifier,coco,darknet,detector,instance-segmenter,regressor,segmenter,super,tag,yolo}.c |
        grep -oE 'find_(int_|float_|char_|)arg\(argc, argv, "-[a-z_]+"' |
        sed 's/.*"\(.*\)"/\1/' | grep -vxE -- '-i|-nogpu' | sort -u >options.txt
    while read -r option; do
        sed -n '/^static char \*commands/,/^};/p' "$SOURCE/examples/darknet.c" | grep -- " ${option}[ \"]"
    done <options.txt
    [[ $(wc -l <options.txt) -eq 19 ]]
}

# filled COMMAND NUMBER-OF-WORDS: its line of the table with files in the place of names; what is missing is left away.
filled() {
    head -n 1 <<<"$1" | tr ' ' '\n' | sed -n "1,$2p" | sed -E "s/^\[(.*)\]$/\1/; s/^CFG$/rnn.cfg/; s/^WEIGHTS$/zero.weights/
        s/^DATA$/cls.data/; s/^IMAGE$/images\/a.png/" | paste -sd '\t'
}

@test "arguments that are missing, too many or unknown; cfgs and weights that are not there, or are none" {
    networks && files && workers
    commands | while read -r line; do
        read -ra words <<<"$line"
        need='' total=${#words[@]}
        for ((n = 2; n < total; n++)); do
            if [[ ${words[n]} != \[* ]]; then
                printf '^%s is missing, usage: .* %s\t%s\n' "${words[n]}" "${words[*]:0:2}" "$(filled "$line" "$n")"
                need=$((n + 1))
            fi
        done
        good=$(filled "$line" $need)
        # These are found in the table, whatever the command is.
        if [[ $line == 'classifier valid '* ]]; then
            printf -- 'Unknown option -xyzzy, usage: \t%s\t-xyzzy\n' "$(filled "$line" "$total")"
            printf 'extra is too much\t%s\textra\n' "$(filled "$line" "$total")"
            printf 'WEIGHTS is empty\t%s\n' "${good//zero.weights/EMPTY}"
        fi
        [[ $line != 'rnn train'* ]] || good+=$'\t-file\tnames'
        printf 'none/rnn.cfg.*No such file\t%s\n' "${good/rnn.cfg/none/rnn.cfg}"
        [[ $line != *' WEIGHTS'* ]] || printf 'cut.weights is truncated\t%s\n' "${good/zero.weights/cut.weights}"
    done >cases
    [[ $(wc -l <cases) -ge 60 ]]
    side_by_side cases
}

@test "images, lists, names and networks that do not fit; what fits works" {
    networks && files && workers
    tr -s ' ' <<'EOF' | sed -E 's/ *\| */\t/; :a; s/^([^\t]*\t.*) /\1\t/; ta' >cases
none.weights.*No such file | classifier predict cls.data cls.cfg none.weights images/a.png
folder is too short | classifier predict cls.data cls.cfg folder images/a.png
empty is too short | classifier predict cls.data cls.cfg empty images/a.png
ok | classifier predict cls.data cls.cfg zero.weights images/a.png -t 2
ok | classifier predict cls.data gray.cfg zero.weights gray.png
ok | classifier predict cls.data cls.cfg zero.weights alpha.png
ok | classifier predict cls.data cls.cfg zero.weights one.png
Cannot load image "none.png" | classifier predict cls.data cls.cfg zero.weights none.png
Cannot load image "folder" | classifier predict cls.data cls.cfg zero.weights folder
Cannot load image "empty" | classifier predict cls.data cls.cfg zero.weights empty
Cannot load image "text.png" | classifier predict cls.data cls.cfg zero.weights text.png
too large | classifier predict cls.data cls.cfg zero.weights huge.png
-t 1o: not a whole number | classifier predict cls.data cls.cfg zero.weights images/a.png -t 1o
-t: its value is missing | classifier predict cls.data cls.cfg zero.weights images/a.png -t
-gpus 0,x: not | classifier train cls.data cls.cfg -gpus 0,x
ok | detector test cls.data yolo.cfg zero.weights images/a.png -out out/picture
ok | detect yolo.cfg zero.weights images/a.png
ok | detector test cls.data yolo.cfg nan.weights images/a.png
-thresh x: not a number | detector test cls.data yolo.cfg zero.weights images/a.png -thresh x
-thresh nan: not a number | detector test cls.data yolo.cfg zero.weights images/a.png -thresh nan
Unknown option -tresh, usage: | detector test cls.data yolo.cfg zero.weights images/a.png -tresh .1
ok | detector valid cls.data yolo.cfg zero.weights
ok | detector recall cls.data yolo.cfg zero.weights
Cannot load image "text.png" | detector recall text.data yolo.cfg zero.weights
usage: .*darknet <function>; .*darknet help lists them |
Unknown option -foo, usage: .*; options: -gpus N,N -c N -t N -clear | classifier train cls.data cls.cfg -foo
Option -clear is there twice | classifier train cls.data cls.cfg -clear -clear
EOF
    side_by_side cases
}

@test "spatial softmax, a folder with blanks in its name, images without tags" {
    networks && files
    seq 8 >names
    # Zeros give each of a place's two values a half, at 4 places.
    { head_of 4 3 && conv_of 2 2 && printf '%s\n' '[softmax]' spatial=1; } >places.cfg
    "$DARKNET" classifier predict cls.data places.cfg zero.weights images/a.png -t 8 2>/dev/null | awk -F % '{ sum += $1 } END { exit sum != 400 }'
    sed -i 's/spatial=1/spatial=0/' places.cfg
    "$DARKNET" classifier predict cls.data places.cfg zero.weights images/a.png -t 8 2>/dev/null | awk -F % '{ sum += $1 } END { exit sum != 100 }'
    printf '%s\n' a b c d >names
    sed 's/backup=.*/backup = my own folder/' cls.data >blanks.data
    mkdir 'my own folder'
    "$DARKNET" classifier train blanks.data cls.cfg -cmn -cmn_validate 0 >plain.log 2>&1
    [[ -s 'my own folder/cls.weights' ]]
    rm labels/a.txt
    { cat tag.cfg && printf '%s\n' '[cost]' type=sse; } >tags.cfg
    "$DARKNET" tag train tags.cfg -data cls.data >plain.log 2>&1
    [[ $(grep -c 'labels/a.txt: an image without tags' plain.log) -eq 1 ]]
}

# A disk that fails when the name is to be on it, and a file system that knows no such call for folders.
@test "weights are written when their name is on the disk, too" {
    [[ -z $SAN ]] || skip 'the sanitizers must be loaded first'
    networks
    files
    cat >calls.c <<'END'
#include <errno.h>
#include <sys/stat.h>

int fsync(int fd)
{
    struct stat st;

    errno = REASON;
    return !fstat(fd, &st) && S_ISDIR(st.st_mode) ? -1 : 0;
}
END
    "${CC:-cc}" -shared -fPIC -DREASON=EIO -o eio.so calls.c
    "${CC:-cc}" -shared -fPIC -DREASON=EINVAL -o einval.so calls.c
    # A space would end the name in LD_PRELOAD, where a path without a slash is looked up in LD_LIBRARY_PATH, which may hold one.
    export LD_LIBRARY_PATH=$PWD
    run env LD_PRELOAD=eio.so "$DARKNET" reset cls.cfg zero.weights out/w
    [[ $status -ne 0 && $output == *"Couldn't write weights to out/w (Input/output error)"* ]]
    LD_PRELOAD=einval.so "$DARKNET" reset cls.cfg zero.weights out/w
    cd out && LD_PRELOAD=einval.so "$DARKNET" reset ../cls.cfg ../zero.weights v && cmp v w
}
