#!/usr/bin/env bats
# shellcheck disable=SC2154  # mpiexec: helpers.bash
# cmn_csv, cmn_chart, cmn_graph, darknet cmn chart.

load helpers

setup() {
    enter_folder
    small_data 200 50
    mlp_cfg batch=20 max_batches=10 >mlp.cfg    # 2 ranks: 5 iterations an epoch, 2 epochs
}

teardown() {
    [[ -z ${job:-} ]] || kill -KILL "$job" 2>/dev/null || true
}

# train ARGUMENTS...: on 2 ranks; output and messages go to files named out.txt and err.txt.
train() {
    darknet_on 2 classifier train small.data mlp.cfg -cmn -cmn_seed 7 -cmn_report_every 2 "$@" >out.txt 2>err.txt ||
        { cat err.txt; return 1; }
}

needs() {
    command -v "$1" >/dev/null || skip "$1 is not installed"
}

# drawing SHELL: puts a gnuplot before the real one that notes when it runs, keeps its script (scripts/1 …), and runs
# SHELL, which may use $n, the number of the call; the first one is the try before the training.
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

# shellcheck disable=SC2016  # $rows is gnuplot's
# Iterations of the rows that a script draws, of a CSV, and of the JSON log.
drawn() {
    sed -n '/^\$rows <</,/^END_OF_ROWS/p' "$1" | awk 'NF > 3 { printf "%s%s", sep, $1; sep = " " } END { print "" }'
}
csv_iterations() {
    tr -d '\r' <"$1" | awk -F , 'NR > 1 { printf "%s%s", sep, $2; sep = " " } END { print "" }'
}
json_iterations() {
    jq -r '[.[].iteration | tostring] | join(" ")' "$1"
}

# is_png FILE: it begins and ends as one, and is no empty picture.
is_png() {
    [[ $(head -c 8 "$1" | od -A n -t x1 | tr -d ' \n') == 89504e470d0a1a0a ]]
    [[ $(tail -c 8 "$1" | od -A n -t x1 | tr -d ' \n') == 49454e44ae426082 ]]
    (($(stat -c %s "$1") > 5000))
}

@test "JSON log and CSV agree, number by number, and with the weights' iteration" {
    needs jq
    train -cmn_csv rows.csv
    [[ $(file_lines rows.csv) -eq 7 && $(grep -c $'\r$' rows.csv) -eq 7 ]]
    [[ $(csv_iterations rows.csv) == '2 4 5 6 8 10' ]]
    tr -d '\r' <rows.csv | jq -R -s 'split("\n") | map(select(. != "") | split(",")) | .[0] as $names
        | .[1:] | map(. as $row | [range($names | length)] | map(select($row[.] != "") | {($names[.]): ($row[.] | tonumber)}) | add)' >csv.json
    diff <(jq -S 'map(del(.ranks, .straggler))' out/mlp.json) <(jq -S . csv.json)
    (($(tail -n 1 rows.csv | cut -d , -f 2) * 40 == $(seen out/mlp.weights)))
}

file_lines() {
    wc -l <"$1"
}

@test "no report changes a weight, and rank 0 alone writes" {
    train
    mv out/mlp.weights plain.weights
    mkdir logs
    drawing ''
    train -cmn_csv rows.csv -cmn_chart chart.png -cmn_graph net.dot -cmn_log logs
    cmp plain.weights out/mlp.weights
    [[ $(grep -c '^digraph' net.dot) -eq 1 && $(csv_iterations rows.csv) == '2 4 5 6 8 10' ]]
    is_png chart.png
    run ! grep -iE 'chart|csv|gnuplot|fork' err.txt logs/rank-1.log
    run ! compgen -G '*.part'
}

@test "the chart shows the rows; one gnuplot at a time, which a quick training does not wait for" {
    drawing 'sleep 0.3'
    train -cmn_report_every 1 -cmn_chart "it's a \"chart\" \$(touch x).png"
    is_png "it's a \"chart\" \$(touch x).png"
    [[ ! -e x ]]
    last=$(find scripts -type f | wc -l)
    echo "$last drawings"
    ((last >= 2 && last < 11))
    [[ $(drawn "scripts/$last") == '1 2 3 4 5 6 7 8 9 10' ]]
    awk '$0 != (NR % 2 ? "begin" : "end") { exit 1 }' calls
    row=$(jq -r '.[9] | "10 \(.["main/loss"]) \(.["validation/main/loss"])"' out/mlp.json)
    grep -qF "$row" "scripts/$last"
}

@test "the chart is drawn while the training goes on" {
    drawing ''
    mlp_cfg batch=20 max_batches=1000000 >mlp.cfg
    "$DARKNET" classifier train small.data mlp.cfg -cmn -cmn_report quiet -cmn_csv rows.csv -cmn_chart chart.png >/dev/null 2>&1 &
    job=$!
    for ((i = 0; i < 300 * SLOW; i++)); do
        [[ ! -s chart.png ]] || break
        sleep 0.1
    done
    is_png chart.png
    kill -0 "$job"
    # Killed in the middle: whole lines, a whole log, a whole picture.
    kill -KILL "$job"
    wait "$job" || true
    job=
    is_png chart.png
    jq -e 'length > 0' out/mlp.json
    tr -d '\r' <rows.csv | awk -F , 'NF != 12 { exit 1 } END { exit !(NR > 1) }'
    [[ $(tail -c 2 rows.csv | od -A n -t x1) == ' 0d 0a' ]]
}

@test "a training that goes on keeps the rows up to its start, in CSV, log and chart" {
    needs jq
    drawing ''
    train -cmn_csv rows.csv
    head -n 4 rows.csv >older.csv
    # From iteration 5 on: those after it are trained, and told, anew.
    darknet_on 2 classifier train small.data mlp.cfg out/mlp_1.weights -cmn -cmn_seed 7 -cmn_report_every 1 \
        -cmn_csv rows.csv -cmn_chart chart.png >out.txt 2>err.txt
    [[ $(csv_iterations rows.csv) == '2 4 5 6 7 8 9 10' ]]
    [[ $(json_iterations out/mlp.json) == '2 4 5 6 7 8 9 10' ]]
    [[ $(drawn "scripts/$(find scripts -type f | wc -l)") == '2 4 5 6 7 8 9 10' ]]
    cmp <(head -n 4 rows.csv) older.csv
    echo 'something,else' >rows.csv
    fails_clearly_on 2 'CSV rows.csv: .*another name' classifier train small.data mlp.cfg out/mlp_1.weights -cmn -cmn_csv rows.csv
    [[ $(<rows.csv) == something,else ]]
}

@test "what cannot be written, or drawn, is one line before the training" {
    for key in csv chart graph; do
        fails_clearly_on 2 'missing/x: No such file' classifier train small.data mlp.cfg -cmn -cmn_$key missing/x
        fails_clearly_on 2 '/dev/null: .*not a file' classifier train small.data mlp.cfg -cmn -cmn_$key /dev/null
        cp mlp.cfg kept.cfg
        fails_clearly_on 2 'mlp.cfg: what is there is no .*another name' classifier train small.data mlp.cfg -cmn -cmn_$key mlp.cfg
        cmp mlp.cfg kept.cfg
    done
    fails_clearly_on 2 'cmn_csv and cmn_chart name the same file' \
        classifier train small.data mlp.cfg -cmn -cmn_csv x -cmn_chart x
    drawing 'echo "unknown terminal" >&2; exit 1'
    fails_clearly_on 2 'chart x: gnuplot says: unknown terminal' classifier train small.data mlp.cfg -cmn -cmn_chart x
    rm -r own scripts
    drawing 'printf half; exit 0'
    fails_clearly_on 2 'chart x: gnuplot has not written all of it' classifier train small.data mlp.cfg -cmn -cmn_chart x
    rm own/gnuplot
    fails_clearly 'chart x: gnuplot is needed .*install it' "${mpiexec[@]}" -x PATH="$PWD/nowhere" -n 2 "$DARKNET" \
        classifier train small.data mlp.cfg -cmn -cmn_chart x
    run ! compgen -G 'x*'
}

@test "a gnuplot that fails later, or hangs, ends the chart and not the training" {
    drawing '((n < 2)) || { echo "out of paint" >&2; exit 3; }'
    train -cmn_chart chart.png
    [[ $(grep -c '^cmn: chart chart.png: gnuplot says: out of paint; the training goes on without the chart$' err.txt) -eq 1 ]]
    [[ $(seen out/mlp.weights) -eq 400 ]]
    run ! compgen -G 'chart.png*'
    rm -r out scripts own
    mkdir out
    drawing '((n < 2)) || exec sleep 1000'
    train -cmn_chart chart.png
    [[ $(grep -c '^cmn: chart chart.png: gnuplot has not ended within 10 s; the training goes on without the chart$' err.txt) -eq 1 ]]
    [[ $(seen out/mlp.weights) -eq 400 ]]
    run ! compgen -G 'chart.png.*'
}

@test "a disk that is full later ends the CSV and not the training" {
    needs strace
    [[ -z $SAN ]] || skip 'strace and sanitizers do not go together'
    timeout 60 strace -f -qq -o trace -P "$PWD/rows.csv" -e trace=write -e inject=write:error=ENOSPC:when=3+ \
        "$DARKNET" classifier train small.data mlp.cfg -cmn -cmn_report_every 2 -cmn_csv rows.csv >out.txt 2>err.txt ||
        { cat err.txt; return 1; }
    grep -q ENOSPC trace || skip 'strace cannot make a write fail here'
    [[ $(grep -c '^cmn: CSV rows.csv: No space left on device; the training goes on without the CSV$' err.txt) -eq 1 ]]
    [[ $(csv_iterations rows.csv) == 2 && $(seen out/mlp.weights) -eq 200 ]]
}

# to N MAX ARGUMENTS...: on N ranks up to iteration MAX, a row every 5.
to() {
    sed -i "s/max_batches=.*/max_batches=$2/" mlp.cfg
    train_on "$1" mlp.cfg -cmn_report_every 5 -cmn_csv rows.csv "${@:3}"
}

# rows_are ITERATIONS: in both logs; and epochs ascend.
rows_are() {
    echo "JSON: $(json_iterations out/mlp.json); CSV: $(csv_iterations rows.csv); wanted: $1"
    [[ $(json_iterations out/mlp.json) == "$1" && $(csv_iterations rows.csv) == "$1" ]]
    jq -e '[.[].epoch] | . == unique' out/mlp.json
}

@test "other ranks count iterations anew: earlier rows stay, and none is told twice" {
    needs jq
    small_data 600 20
    to 1 30 -cmn_checkpoint 30
    rows_are '5 10 15 20 25 30'
    cp -r out before
    # Killed before the first checkpoint of the new count, and again, with as many ranks or other ones.
    to 3 20 -cmn_checkpoint 100
    rows_are '5 10 15 20 25 30 15 20'
    for again in '3 15 15' '2 25 20 25' '1 35 35'; do
        read -r ranks max rows <<<"$again"
        rm out/*.checkpoint
        cp before/*.checkpoint out/
        to "$ranks" "$max" -cmn_checkpoint 100
        rows_are "5 10 15 20 25 30 $rows"
    done
    # From a checkpoint of the new count, whose iterations are lower than those of before.
    rm out/*.checkpoint
    cp before/*.checkpoint out/
    to 3 20 -cmn_checkpoint 5
    to 3 25 -cmn_checkpoint 5
    rows_are '5 10 15 20 25 30 15 20 25'
    # With a weights file, too: 25 iterations of 60 images are 75 of 20.
    rm out/*.checkpoint
    sed -i 's/max_batches=.*/max_batches=80/' mlp.cfg
    darknet_on 1 classifier train small.data mlp.cfg out/mlp.weights -cmn -cmn_validate 0 -cmn_report_every 5 -cmn_csv rows.csv
    rows_are '5 10 15 20 25 30 15 20 25 80'
}

@test "a weights file of a training with another list: rows of before stay" {
    needs jq
    small_data 200 20
    to 1 20
    small_data 400 20
    sed -i 's/max_batches=.*/max_batches=25/' mlp.cfg
    darknet_on 1 classifier train small.data mlp.cfg out/mlp.weights -cmn -cmn_validate 0 -cmn_report_every 5 -cmn_csv rows.csv
    [[ $(json_iterations out/mlp.json) == '5 10 15 20 25' && $(csv_iterations rows.csv) == '5 10 15 20 25' ]]
}

# whole_rows FILE: how many a torn log has.
whole_rows() {
    local row n=0
    while IFS= read -r row || [[ -n $row ]]; do
        ! jq -e 'has("iteration")' <<<"${row%,}" >/dev/null 2>&1 || n=$((n + 1))
    done <"$1"
    echo "$n"
}

@test "a torn JSON log keeps its whole rows, and that is said" {
    needs jq
    train -cmn_checkpoint 10
    sed -i 's/max_batches=.*/max_batches=12/' mlp.cfg
    cp -r out before
    # Cut in the last row, at two thirds, before the array's end, in the first row, behind the array's begin.
    size=$(stat -c %s out/mlp.json)
    for bytes in $((size - 20)) $((size * 2 / 3)) $((size - 2)) 20 1; do
        rm -r out
        cp -r before out
        truncate -s "$bytes" out/mlp.json
        n=$(whole_rows out/mlp.json)
        train -cmn_checkpoint 10
        echo "$bytes of $size bytes, $n rows: $(json_iterations out/mlp.json)"
        grep "^cmn: JSON log out/mlp.json: its end is torn .*of $n whole rows $n stay" err.txt
        [[ $(grep -c torn err.txt) -eq 1 ]]
        diff <(jq -c ".[:$n][]" before/mlp.json) <(jq -c '.[:-1][]' out/mlp.json)
        [[ $(jq 'last.iteration' out/mlp.json) == 12 ]]
    done
    # Nothing is torn there.
    for log in '' '[]' $'[\n]\n'; do
        rm -r out
        cp -r before out
        printf %s "$log" >out/mlp.json
        train -cmn_checkpoint 10
        run ! grep torn err.txt
        [[ $(json_iterations out/mlp.json) == 12 ]]
    done
}

@test "what is no JSON log is not overwritten, and the CSV stays, too" {
    needs jq
    train -cmn_checkpoint 10 -cmn_csv rows.csv
    cp rows.csv before.csv
    sed -i 's/max_batches=.*/max_batches=12/' mlp.cfg
    for notes in 'precious notes' '[{"name": "mine"}]' '[] and more'; do
        echo "$notes" >notes
        for begins in '-cmn_checkpoint 10' -clear; do
            for link in '' yes; do
                rm -f out/mlp.json
                if [[ -n $link ]]; then ln -s ../notes out/mlp.json; else cp notes out/mlp.json; fi
                # shellcheck disable=SC2086  # words
                run -1 train_on 2 mlp.cfg -cmn_csv rows.csv $begins
                [[ $(grep -c 'JSON log out/mlp.json: what is there is no JSON log, and would be lost: .*another name' train.log) -eq 1 ]]
                run ! grep '^1, ' train.log
                [[ $(<out/mlp.json) == "$notes" && $(<notes) == "$notes" ]]
                cmp rows.csv before.csv
            done
        done
    done
    # A log is replaced through a link as ever.
    echo '[{"epoch":1,"iteration":70}]' >notes
    train -clear -cmn_json out/mlp.json
    [[ -L out/mlp.json && $(json_iterations notes) == '2 4 5 6 8 10 12' ]]
}

@test "a full disk takes no row of the JSON log" {
    needs jq
    mkdir tiny
    unshare -m mount -t tmpfs tmpfs tiny 2>/dev/null || skip 'this user cannot mount a small disk'
    train -cmn_checkpoint 2
    sed -i 's/max_batches=.*/max_batches=200/' mlp.cfg
    # shellcheck disable=SC2016  # the inner shell's
    unshare -m bash -c 'mount -t tmpfs -o size=16k tmpfs tiny && cp out/mlp.json tiny/
        "$@" -cmn_report_every 1 >out.txt 2>err.txt
        cp tiny/mlp.json full.json' - "${mpiexec[@]}" -n 2 "$DARKNET" classifier train small.data mlp.cfg -cmn -cmn_seed 7 \
        -cmn_checkpoint 2 -cmn_json tiny/mlp.json
    grep 'JSON log tiny/mlp.json: No space left on device' err.txt
    jq -e 'length > 6 and .[5].iteration == 10' full.json
}

@test "a JSON log that is killed while it is cut has its rows" {
    needs jq
    needs strace
    [[ -z $SAN ]] || skip 'strace and sanitizers do not go together'
    train_on 1 mlp.cfg -cmn_report_every 2 -cmn_checkpoint 5 -cmn_checkpoint_keep 9
    [[ $(json_iterations out/mlp.json) == '2 4 6 8 10' ]]
    rm out/mlp-10.checkpoint    # rows 6, 8 and 10 are trained anew
    cp -r out before
    killed=0
    for call in 'write 1' 'write 2' 'write 3' 'pwrite64 1' 'ftruncate 1'; do
        rm -r out
        cp -r before out
        status=0
        timeout 60 strace -f -qq -o trace -P "$PWD/out/mlp.json" -e "inject=${call% *}:signal=KILL:when=${call#* }" \
            "$DARKNET" classifier train small.data mlp.cfg -cmn -cmn_seed 7 -cmn_validate 0 -cmn_report_every 2 \
            -cmn_checkpoint 5 >out.txt 2>err.txt || status=$?
        echo "$call: status $status, $(jq -c '[.[].iteration]' out/mlp.json)"
        ((status != 137)) || killed=$((killed + 1))
        diff <(jq -c '.[:2][]' before/mlp.json) <(jq -c '.[:2][]' out/mlp.json)
        train_on 1 mlp.cfg -cmn_report_every 2 -cmn_checkpoint 5
        [[ $(json_iterations out/mlp.json) == '2 4 6 8 10' ]]
    done
    ((killed)) || skip 'strace cannot kill here'
}

# A detector of one class, and images with a box each: detector.data, detector.cfg.
small_detector() {
    local image
    mkdir boxes
    for image in $(head -n 8 train.list); do
        cp "$image" boxes/
        image=boxes/$(basename "$image")
        echo '0 0.5 0.5 0.6 0.7' >"${image%.png}.txt"
        echo "$image" >>boxes.list
    done
    echo digit >names.txt
    printf '%s\n' 'classes=1' 'train=boxes.list' 'valid=boxes.list' 'names=names.txt' 'backup=out' >detector.data
    net_section batch=4 height=32 width=32 channels=3 max_batches=3 learning_rate=0.001 >detector.cfg
    printf '%s\n' '[convolutional]' 'filters=18' 'size=8' 'stride=8' 'activation=linear' \
        '[yolo]' 'mask=0,1,2' 'anchors=10,10, 16,16, 20,22' 'classes=1' 'num=3' 'random=0' >>detector.cfg
}

@test "a detector has columns of its own: mAP in table, log, CSV and chart" {
    needs jq
    small_detector
    drawing ''
    darknet_on 2 detector train detector.data detector.cfg -cmn -cmn_seed 7 -cmn_report_every 1 -cmn_csv rows.csv \
        -cmn_chart chart.png >out.txt 2>err.txt || { cat err.txt; return 1; }
    heading=$(grep '^epoch' out.txt | tr -s ' ')
    [[ $heading == 'epoch iteration main/loss validation/main/map validation/main/map50_95 lr images/s elapsed_time ' ]]
    [[ $(head -n 1 rows.csv) == epoch,iteration,main/loss,validation/main/map,validation/main/map50_95,lr,* ]]
    jq -e 'length == 3 and all(.[]; has("validation/main/map", "validation/main/map50_95")
        and ."validation/main/map" >= ."validation/main/map50_95" and ."validation/main/map" <= 1
        and (has("main/accuracy") or has("validation/main/loss") | not))' out/detector.json
    [[ $(json_iterations out/detector.json) == '1 2 3' && $(csv_iterations rows.csv) == '1 2 3' ]]
    last=scripts/$(find scripts -type f | wc -l)
    [[ $(drawn "$last") == '1 2 3' ]]
    grep -q 'IoU 0.5 to 0.95: ' "$last"
    is_png chart.png
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
    darknet_on 2 classifier train small.data conv.cfg -cmn -cmn_graph conv.dot >out.txt 2>err.txt
    cat conv.dot
    [[ $(grep -c ' -> ' conv.dot) -eq 6 ]]
    grep -qF 'label="0  convolutional\n5 × 5, 6 filters, relu\n28 × 28 × 6\n156 parameters"' conv.dot
    grep -qF 'input -> layer0;' conv.dot
    grep -qF 'layer4 -> layer5;' conv.dot
    grep -qF 'label="5  softmax\n10 values"' conv.dot
    command -v dot >/dev/null || skip 'dot (graphviz) is not installed: the rest was tested'
    [[ $(dot -Tplain conv.dot | awk '$1 == "node"' | wc -l) -eq 7 ]]
    [[ $(dot -Tplain conv.dot | awk '$1 == "edge"' | wc -l) -eq 6 ]]
}
