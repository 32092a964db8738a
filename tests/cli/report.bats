#!/usr/bin/env bats
# shellcheck disable=SC2154  # mpiexec: helpers.bash
# cmn_chart, cmn_tensorboard, cmn_graph, darknet cmn chart.

load helpers
load reports

teardown() {
    [[ -z ${job:-} ]] || kill -KILL "$job" 2>/dev/null || true
}

# drawing SHELL: puts a gnuplot before the real one that notes when it runs, keeps its script (scripts/1 …), and runs
# SHELL, which may use $n, the number of the call.
drawing() {
    needs gnuplot
    mkdir -p own scripts
    cat >own/gnuplot <<END
#!/usr/bin/env bash
set -euo pipefail
cd '$PWD'
n=\$((\$(find scripts -type f | wc -l) + 1))
cat >scripts/\$n
echo begin >>calls
$1
status=0
'$(command -v gnuplot)' "\$@" <scripts/\$n || status=\$?
echo end >>calls
exit \$status
END
    chmod +x own/gnuplot
    PATH=$PWD/own:$PATH
}

# shellcheck disable=SC2016  # $curve0 is gnuplot's
# Iterations of the rows that a script draws.
drawn() {
    sed -n '/^\$curve0 <</,/^END_OF_VALUES/p;/^END_OF_VALUES/q' "$1" | awk 'NF == 2 { printf "%s%s", sep, $1; sep = " " } END { print "" }'
}
# is_png FILE: it begins and ends as one, and is no empty picture.
is_png() {
    [[ $(head -c 8 "$1" | od -A n -t x1 | tr -d ' \n') == 89504e470d0a1a0a ]]
    [[ $(tail -c 8 "$1" | od -A n -t x1 | tr -d ' \n') == 49454e44ae426082 ]]
    (($(stat -c %s "$1") > 5000))
}

@test "the line of jq in docs/use/reports.md makes CSV of a log, with each row's numbers" {
    needs jq
    train
    line=$(grep @csv "$REPO/docs/use/reports.md")
    eval "${line/results\/mnist\/mnist_mlp.json/out/mlp.json}" >rows.csv
    [[ $(file_lines rows.csv) -eq 7 ]]
    tr -d '"' <rows.csv | jq -R -s 'split("\n") | map(select(. != "") | split(",")) | .[0] as $names
        | .[1:] | map(. as $row | [range($names | length)] | map(select($row[.] != "") | {($names[.]): ($row[.] | tonumber)}) | add)' >csv.json
    diff <(jq -S 'map(del(.ranks, .straggler))' out/mlp.json) <(jq -S . csv.json)
    (($(jq last.iteration csv.json) * 40 == $(seen "out/mlp$FINAL.weights")))
}

# events FOLDER [LOG]: the iterations in TensorBoard's event files, whose rows must be those of the log.
events() {
    python3 "$REPO/tests/tools/event_files.py" "$@"
}

@test "the event file for TensorBoard has the rows of the JSON log, to the bit, and over a resume" {
    needs python3
    half_weights
    train -cmn_tensorboard runs/first
    [[ $(events runs/first out/mlp.json) == '2 4 5 6 8 10' ]]
    # Where the clock of the host before was ahead, the later file is the last one by name all the same.
    mv runs/first/* "runs/first/events.out.tfevents.$(($(date +%s) + 1000)).elsewhere.1"
    darknet_on 1 classifier train small.data mlp.cfg half.weights -cmn -cmn_seed 7 -cmn_report_every 1 \
        -cmn_tensorboard runs/first >out.txt 2>err.txt
    [[ $(events runs/first out/mlp.json) == '2 4 5 6 7 8 9 10' && $(find runs/first -type f | wc -l) -eq 2 ]]
    # Rows of a training that begins anew replace them.
    train -clear -cmn_tensorboard runs/first
    [[ $(events runs/first out/mlp.json) == '2 4 5 6 8 10' ]]
    # A loss that is not a number.
    mlp_cfg batch=40 max_batches=4 learning_rate=1e30 cmn_nonfinite=ignore >mlp.cfg
    train -cmn_tensorboard runs/nan
    jq -e 'any(.[]; has("main/loss") and .["main/loss"] == null)' out/mlp.json
    [[ $(events runs/nan out/mlp.json) == '2 4' ]]
}

file_lines() {
    wc -l <"$1"
}

@test "no report changes a weight, and rank 0 alone writes" {
    ranks=2 train
    mv "out/mlp$FINAL.weights" plain.weights
    mkdir logs
    drawing ''
    ranks=2 train -cmn_chart rows.png -cmn_tensorboard board -cmn_graph net.dot -cmn_rank_logs logs
    cmp plain.weights "out/mlp$FINAL.weights"
    [[ $(grep -c '^digraph' net.dot) -eq 1 ]]
    is_png rows.png
    [[ $(find board -type f | wc -l) -eq 1 ]]
    run -1 grep -iE 'chart|event|gnuplot|fork' err.txt logs/rank-1.log
    run -1 compgen -G '*.part'
}

@test "the chart shows the rows; one gnuplot at a time, which a quick training does not wait for" {
    drawing 'sleep 0.3'
    train -cmn_report_every 1 -cmn_chart "it's a \"chart\" \$(touch x).png"
    is_png "it's a \"chart\" \$(touch x).png"
    [[ ! -e x ]]
    last=$(find scripts -type f | wc -l)
    echo "$last drawings"
    ((last >= 1 && last < 10))
    [[ $(drawn "scripts/$last") == '1 2 3 4 5 6 7 8 9 10' ]]
    awk '$0 != (NR % 2 ? "begin" : "end") { exit 1 }' calls
    for loss in main/loss validation/main/loss; do
        grep -qxF "10 $(jq -r ".[9][\"$loss\"]" out/mlp.json)" "scripts/$last"
    done
}

@test "the chart is drawn while the training goes on" {
    drawing ''
    mlp_cfg batch=20 max_batches=1000000 >mlp.cfg
    "$DARKNET" classifier train small.data mlp.cfg -cmn -cmn_report quiet -cmn_chart rows.png >/dev/null 2>&1 &
    job=$!
    wait_for 'a picture' test -s rows.png
    is_png rows.png
    kill -0 "$job"
    # Killed in the middle: whole lines, a whole log, a whole picture.
    kill -KILL "$job"
    wait "$job" || true
    job=
    is_png rows.png
    jq -e 'length > 0' out/mlp.json
}

@test "a training that goes on keeps the rows up to its start, in log and chart" {
    needs jq
    half_weights
    drawing ''
    train
    cp out/mlp.json older.json
    # From iteration 5 on: those after it are trained, and told, anew.
    darknet_on 1 classifier train small.data mlp.cfg half.weights -cmn -cmn_seed 7 -cmn_report_every 1 \
        -cmn_chart rows.png >out.txt 2>err.txt
    [[ $(json_iterations out/mlp.json) == '2 4 5 6 7 8 9 10' ]]
    [[ $(drawn "scripts/$(find scripts -type f | wc -l)") == '2 4 5 6 7 8 9 10' ]]
    diff <(jq -c '.[:3][]' older.json) <(jq -c '.[:3][]' out/mlp.json)
}

@test "what cannot be written, or drawn, is one line before the training" {
    for key in chart graph; do
        fails_clearly_on 1 'missing/x: No such file' classifier train small.data mlp.cfg -cmn -cmn_$key missing/x
        fails_clearly_on 1 '/dev/null: .*not a file' classifier train small.data mlp.cfg -cmn -cmn_$key /dev/null
        cp mlp.cfg kept.cfg
        fails_clearly_on 1 'mlp.cfg: what is there is no .*another name' classifier train small.data mlp.cfg -cmn -cmn_$key mlp.cfg
        cmp mlp.cfg kept.cfg
    done
    # A picture that is no chart, and a graph of another program, are others' files, too.
    cp "$REPO/$(head -n 1 "$REPO/data/mnist/train.list")" photo.png
    echo 'digraph mine { a -> b }' >mine.dot
    cp photo.png kept.png
    fails_clearly_on 1 'chart photo.png: what is there is no chart of a training' classifier train small.data mlp.cfg -cmn -cmn_chart photo.png
    fails_clearly_on 1 'graph mine.dot: what is there is no graph of a training' classifier train small.data mlp.cfg -cmn -cmn_graph mine.dot
    cmp photo.png kept.png
    [[ $(<mine.dot) == 'digraph mine { a -> b }' ]]
    fails_clearly_on 1 'cmn_tensorboard=mlp.cfg/x: the folder cannot be made: Not a directory' \
        classifier train small.data mlp.cfg -cmn -cmn_tensorboard mlp.cfg/x
    fails_clearly_on 1 'event file mlp.cfg/events.*: Not a directory' \
        classifier train small.data mlp.cfg -cmn -cmn_tensorboard mlp.cfg
    fails_clearly_on 1 'cmn_json: out/mlp.weights has a name as the training gives its weights and checkpoints' \
        classifier train small.data mlp.cfg -cmn -cmn_json out/mlp.weights
    fails_clearly_on 1 'cmn_json and cmn_chart name the same file' \
        classifier train small.data mlp.cfg -cmn -cmn_json x -cmn_chart x
    fails_clearly 'chart x: gnuplot, which draws it, is not installed: install it' env OMPI_MCA_ess_singleton_isolated=1 PATH="$PWD/nowhere" "$DARKNET" \
        classifier train small.data mlp.cfg -cmn -cmn_chart x
    run -1 compgen -G 'x*'
}

@test "a gnuplot that fails or hangs ends neither the training nor later charts, and is named once" {
    drawing '((n > 1)) || { echo "out of paint" >&2; exit 3; }; sleep 0.1'
    train -cmn_chart rows.png -cmn_report_every 1
    [[ $(grep -c '^cmn: darknet cmn chart: chart rows.png: gnuplot says: out of paint; the training continues, and the chart is drawn again at a later row$' err.txt) -eq 1 ]]
    [[ $(seen "out/mlp$FINAL.weights") -eq 400 ]]
    is_png rows.png
    rm -r out scripts own rows.png
    drawing 'printf half; exit 0'
    train -cmn_chart rows.png -cmn_report_every 1
    [[ $(grep -c 'chart rows.png: gnuplot wrote a part of it only' err.txt) -eq 1 ]]
    run -1 compgen -G 'rows.png*'
    rm -r out scripts own
    drawing 'exec sleep 1000'
    train -cmn_chart rows.png
    [[ $(grep -c '^cmn: .*chart rows.png: gnuplot did not end within 30 s; the training continues' err.txt) -eq 1 ]]
    [[ $(seen "out/mlp$FINAL.weights") -eq 400 ]]
    run -1 compgen -G 'rows.png*'
}

@test "a disk that is full for a moment takes no row of the JSON log, and the training continues" {
    needs strace
    [[ -z $SAN ]] || skip 'strace and sanitizers do not go together'
    mkdir -p out
    timeout "$HANG_LIMIT" strace -ff --seccomp-bpf -qq -o trace -P "$PWD/out/mlp.json" -e trace=write -e inject=write:error=ENOSPC:when=4 \
        "$DARKNET" classifier train small.data mlp.cfg -cmn -cmn_report_every 2 >out.txt 2>err.txt
    grep -q ENOSPC trace.* || skip 'strace cannot make a write fail here'
    cat err.txt
    [[ $(grep -c '^cmn: JSON log out/mlp.json: No space left on device; the training continues' err.txt) -eq 1 ]]
    [[ $(seen "out/mlp$FINAL.weights") -eq 400 && $(json_iterations out/mlp.json) == '2 4 5 6 8 10' ]]
}

# A detector of one class, and images with a box each: detector.data, detector.cfg.
small_detector() {
    local image
    mkdir boxes
    head -n 8 train.list >few.list
    while read -r image; do
        cp "$image" boxes/
        image=boxes/$(basename "$image")
        echo '0 0.5 0.5 0.6 0.7' >"${image%.png}.txt"
        echo "$image" >>boxes.list
    done <few.list
    echo digit >names.txt
    printf '%s\n' 'classes=1' 'train=boxes.list' 'valid=boxes.list' 'names=names.txt' 'backup=out' >detector.data
    net_section batch=4 height=32 width=32 channels=3 max_batches=3 learning_rate=0.001 >detector.cfg
    printf '%s\n' '[convolutional]' 'filters=18' 'size=8' 'stride=8' 'activation=linear' \
        '[yolo]' 'mask=0,1,2' 'anchors=10,10, 16,16, 20,22' 'classes=1' 'num=3' 'random=0' >>detector.cfg
}

@test "a detector has columns of its own: mAP in table, log and chart" {
    needs jq
    small_detector
    drawing ''
    darknet_on 2 detector train detector.data detector.cfg -cmn -cmn_seed 7 -cmn_report_every 1 \
        -cmn_chart rows.png >out.txt 2>err.txt || { cat err.txt; return 1; }
    heading=$(grep '^epoch' out.txt | tr -s ' ')
    [[ $heading == 'epoch iteration main/loss validation/main/map validation/main/map50_95 lr images/s elapsed_time ' ]]
    jq -e 'length == 3 and all(.[]; has("validation/main/map", "validation/main/map50_95")
        and ."validation/main/map" >= ."validation/main/map50_95" and ."validation/main/map" <= 1
        and (has("main/accuracy") or has("validation/main/loss") | not))' out/detector.json
    [[ $(json_iterations out/detector.json) == '1 2 3' ]]
    last=scripts/$(find scripts -type f | wc -l)
    [[ $(drawn "$last") == '1 2 3' ]]
    grep -q 'IoU 0.5 to 0.95: ' "$last"
    is_png rows.png
}

@test "darknet cmn chart draws a log" {
    needs gnuplot
    train
    "$DARKNET" cmn chart out/mlp.json picture.png
    is_png picture.png
    for arguments in mlp.cfg missing.json; do
        run -1 "$DARKNET" cmn chart "$arguments" other.png
        [[ $output == "darknet cmn chart: $arguments: cannot be read as a JSON log"* ]]
    done
    run -1 "$DARKNET" cmn chart out/mlp.json missing/x.png
    [[ $output == *'missing/x.png: No such file'* ]]
    run -1 "$DARKNET" cmn chart out/mlp.json out/mlp.json
    [[ $output == *'same file'* ]]
    run -1 "$DARKNET" cmn chart out/mlp.json
    [[ $output == usage:* ]]
    [[ ! -e other.png ]]
    jq -e length out/mlp.json
}

@test "the graph has the layers, and Graphviz draws it" {
    conv_cfg batch=20 max_batches=1 >conv.cfg
    darknet_on 1 classifier train small.data conv.cfg -cmn -cmn_graph conv.dot >out.txt 2>err.txt
    cat conv.dot
    [[ $(grep -c ' -> ' conv.dot) -eq 6 ]]
    grep -qF 'label="0  convolutional\n5 × 5, 6 filters, relu\n28 × 28 × 6\n'$((6 * (25 * CHANNELS + 1)))' parameters"' conv.dot
    grep -qF 'input -> layer0;' conv.dot
    grep -qF 'layer4 -> layer5;' conv.dot
    grep -qF 'label="5  softmax\n10 values"' conv.dot
    command -v dot >/dev/null || skip 'dot (graphviz) is not installed: the rest was tested'
    [[ $(dot -Tplain conv.dot | awk '$1 == "node"' | wc -l) -eq 7 ]]
    [[ $(dot -Tplain conv.dot | awk '$1 == "edge"' | wc -l) -eq 6 ]]
}
