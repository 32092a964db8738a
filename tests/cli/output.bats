#!/usr/bin/env bats
# What people see: rank 0 alone speaks, in a pipe what scripts expect, on a terminal a table with a bar.

load helpers

setup() {
    enter_folder
    small_data 200 50
    mlp_cfg batch=20 max_batches=10 >mlp.cfg    # 2 ranks: 5 iterations an epoch, 2 epochs
}

# train ARGUMENTS...: on 2 ranks; output and messages go to files named out.txt and err.txt.
train() {
    darknet_on 2 classifier train small.data mlp.cfg -cmn -cmn_seed 7 "$@" >out.txt 2>err.txt
}

# on_terminal ARGUMENTS...: the same, on a terminal; everything goes to screen.txt.
on_terminal() {
    local command
    command -v script >/dev/null || skip 'script (bsdutils) is not installed'
    # shellcheck disable=SC2154  # mpiexec: helpers.bash
    command=$(printf '%q ' "${mpiexec[@]}" -n 2 "$DARKNET" classifier train small.data mlp.cfg -cmn -cmn_seed 7 "$@")
    timeout "$HANG_LIMIT" script -qec "$command" screen.txt </dev/null >/dev/null
}

heading='^epoch +iteration +main/loss +validation/main/loss +main/accuracy +validation/main/accuracy +lr +images/s +elapsed_time *$'

@test "in a pipe: rank 0 alone prints, Darknet's line for each iteration, a row an epoch with all columns filled, and no bar" {
    rm -r out
    train
    for once in '^Learning Rate: ' '^mlp$' "$heading"; do
        [[ $(grep -cE "$once" out.txt) -eq 1 ]]
    done
    [[ $(grep -cE '^ *layer +filters' err.txt) -eq 1 ]]
    [[ $(grep -c '^cmn: 2 ranks' err.txt) -eq 1 ]]
    [[ $(grep -c "^Saving weights to out/mlp$FINAL.weights\$" err.txt) -eq 1 ]]
    iterations=$(grep -cE '^[0-9]+, [0-9.]+: [0-9.]+, [0-9.]+ avg, [0-9.]+ rate, [0-9.]+ seconds, [0-9]+ images(, [0-9.]+ hours left)?$' out.txt)
    [[ $iterations -eq 10 ]]
    [[ $(grep -c '^Loaded: [0-9.]* seconds$' out.txt) -eq 10 ]]
    grep -qE '^10, 2\.000: .* 400 images(,|$)' out.txt
    grep -qE '^cmn: 2 ranks on 1 node, communicator shm \(auto: one node\), fp32, overlap off, batch 20 per rank, global batch 40, .*seed 7$' err.txt
    [[ $(grep -A 1 -E "$heading" out.txt | tail -n 1 | wc -w) -eq 9 ]]
    awk '$1 == "1.00" && $2 == 5 && NF == 9 { one = 1 } $1 == "2.00" && $2 == 10 && NF == 9 { two = 1 }
        END { exit !(one && two) }' out.txt
    run -1 grep -q $'[\r\033]' out.txt
    run -1 grep -q ETA out.txt
    # A folder for the weights is made and said. They are written under another name first, and nothing else is left behind.
    grep -q '^cmn: made the backup folder out$' err.txt
    [[ $(cd out && echo *) == "$(pjreddies && echo mlp.json mlp.weights mlp_1.weights mlp_2.weights mlp_best.weights || echo mlp.json mlp_best.weights mlp_final.weights)" ]]
    # What the validation said is what classifier valid says.
    darknet_on 2 classifier valid small.data mlp.cfg "out/mlp$FINAL.weights" -cmn >valid.txt 2>/dev/null
    accuracy=$(awk '/^2\.00 +10 / { print $6 }' out.txt)
    right=$(sed -n 's/^validation: 50 images, \([0-9]*\) right.*/\1/p' valid.txt)
    awk -v a="$accuracy" -v r="$right" 'BEGIN { d = a - r / 50; exit !(a != "" && r != "" && d < 1e-4 && d > -1e-4) }'
}

@test "no validation: cmn_validate=off, or no list" {
    train -cmn_validate 0
    awk '/^1\.00 +5 / { if (NF == 7) good = 1 } END { exit !good }' out.txt
    sed -i /^valid/d small.data
    train
    awk '/^1\.00 +5 / { if (NF == 7) good = 1 } END { exit !good }' out.txt
    grep -q 'no .valid. list' err.txt
}

@test "cmn_report_every adds rows, those between epochs without validation; the JSON log has ChainerMN's names, and agrees" {
    command -v jq >/dev/null || skip 'jq is not installed'
    train -cmn_report_every 2
    awk '/^[0-9.]+ +[0-9]+ +[0-9.]+ / && $2 ~ /^[0-9]+$/ { if (NF == 9) full++; else if (NF == 7) short++ }
        END { exit !(full == 2 && short == 4) }' out.txt
    jq -e 'length == 6' out/mlp.json
    jq -e '[.[].iteration] == [2, 4, 5, 6, 8, 10]' out/mlp.json
    jq -e '.[2] | [has("epoch", "iteration", "main/loss", "validation/main/loss", "main/accuracy",
        "validation/main/accuracy", "lr", "images/s", "elapsed_time")] | all' out/mlp.json
    jq -e '.[0] | has("validation/main/loss", "validation/main/accuracy") | not' out/mlp.json
    jq -e 'all(.[]; ."main/accuracy" >= 0 and ."main/accuracy" <= 1 and .lr == 0.02 and ."images/s" > 0)' out/mlp.json
    jq -e '[.[].elapsed_time] == ([.[].elapsed_time] | sort)' out/mlp.json
    row=$(jq -r '.[5] | "\(.["main/loss"]) \(.["validation/main/accuracy"])"' out/mlp.json)
    awk -v row="$row" '/^2\.00 +10 / { split(row, w, " ")
        good = $3 - w[1] < 1e-5 && w[1] - $3 < 1e-5 && $6 - w[2] < 1e-3 && w[2] - $6 < 1e-3 } END { exit !good }' out.txt
    train -cmn_json elsewhere.json
    jq -e 'length == 2' elsewhere.json
    run -1 compgen -G 'elsewhere.json.*'
}

@test "a progress bar on a terminal, and Darknet's lines hidden behind the table" {
    on_terminal
    grep -q $'\r\[#* *\] *[0-9]* %.*ETA' screen.txt
    tr -d '\r' <screen.txt | sed 's/\x1b\[K/\n/g' >lines.txt
    grep -qE "$heading" lines.txt
    grep -qE '^1\.00 +5 ' lines.txt
    run -1 grep -qE ' avg, .* rate, ' screen.txt
}

@test "cmn_report=lines keeps Darknet's lines on a terminal" {
    on_terminal -cmn_report lines
    [[ $(grep -cE ' avg, .* rate, ' screen.txt) -eq 10 ]]
    tr -d '\r' <screen.txt | grep -E '^1\.00 +5 '
    run -1 grep -q ETA screen.txt
}

@test "cmn_report=quiet: neither table nor iterations nor messages" {
    train -cmn_report quiet
    run -1 grep -E 'main/loss| avg, |ETA' out.txt
    run -1 grep '^cmn' err.txt
    [[ -s out/mlp$FINAL.weights && -s out/mlp.json ]]
}

@test "cmn_rank_logs: the other ranks write to files of their own, and report the same loss" {
    mkdir logs
    ln -s /dev/null logs/rank-3.log
    losses() {
        sed -nE 's/^([0-9]+), [0-9.]+: ([0-9.]+), ([0-9.]+) avg.*/\1 \2 \3/p' "$1"
    }
    darknet_on 4 classifier train small.data mlp.cfg -cmn -cmn_rank_logs logs >out.txt 2>err.txt
    [[ $(cd logs && echo *) == 'rank-1.log rank-2.log rank-3.log' ]]
    for rank in 1 2; do
        [[ $(grep -cE ' avg, .* rate, ' logs/rank-$rank.log) -eq 10 ]]
        run -1 grep -E "$heading" logs/rank-$rank.log
        diff <(losses out.txt) <(losses logs/rank-$rank.log)
    done
    [[ $(losses out.txt | wc -l) -eq 10 ]]
    [[ $(head -n 1 logs/rank-2.log) == 'output of rank 2 of 4' ]]
    # What an earlier start has written stays.
    darknet_on 3 classifier train small.data mlp.cfg -cmn -cmn_rank_logs logs >out.txt 2>err.txt
    [[ $(grep -cE ' avg, .* rate, ' logs/rank-2.log) -eq 20 && $(grep -c '^output of rank 2 of [34]$' logs/rank-2.log) -eq 2 ]]
    echo 'my own notes' >logs/rank-1.log
    run -1 darknet_on 3 classifier train small.data mlp.cfg -cmn -cmn_rank_logs logs
    [[ $(grep -c 'cmn_rank_logs: logs/rank-1.log: what is there is no log of a rank, and would be lost' <<<"$output") -eq 1 ]]
    [[ $(<logs/rank-1.log) == 'my own notes' ]]
}

@test "several processes without -cmn: one warning, and they train as Darknet does" {
    darknet_on 2 classifier train small.data mlp.cfg "${NO_WINDOW[@]}" >out.txt 2>err.txt
    # Copies share the screen: what another one has begun may stand before it on the line.
    [[ $(grep -c 'cmn: warning: 2 processes.*-cmn' err.txt) -eq 1 ]]
    [[ $(grep -cE ' avg, .* rate, ' out.txt) -eq 20 ]]
}

@test "one process without -cmn: not a word" {
    "$DARKNET" classifier train small.data mlp.cfg "${NO_WINDOW[@]}" >out.txt 2>err.txt
    run -1 grep -i cmn out.txt err.txt
    "${mpiexec[@]}" -n 1 "$DARKNET" classifier train small.data mlp.cfg "${NO_WINDOW[@]}" >out.txt 2>err.txt
    run -1 grep -i cmn out.txt err.txt
}

@test "-cmn without mpiexec is a job of one rank" {
    "$DARKNET" classifier train small.data mlp.cfg -cmn >out.txt 2>err.txt
    grep -q '^cmn: 1 rank on 1 node' err.txt
    grep -qE '^1\.00 +10 ' out.txt
}

@test "darknet cmn list shows every communicator and key" {
    "$DARKNET" cmn list >list.txt
    for name in naive flat dummy; do
        grep -qE "^ +$name " list.txt
    done
    for key in communicator batch epochs scatter seed validate report report_every json rank_logs cache_mb verify; do
        grep -qE "^ +cmn_$key=" list.txt
    done
}

@test "darknet cmn help, no command, unknown command" {
    "$DARKNET" cmn help | grep 'darknet cmn list'
    run -1 "$DARKNET" cmn
    [[ $output == *'darknet cmn list'* ]]
    run -1 "$DARKNET" cmn lsit
    [[ $output == *'unknown command lsit'* && $output == *'darknet cmn list'* ]]
    run -1 "$DARKNET" cmn list -html
    [[ $output == *-html*-md* ]]
    "$DARKNET" cmn help >all.txt
    for words in -h --help 'help -h'; do
        # shellcheck disable=SC2086
        "$DARKNET" cmn $words | diff all.txt -
    done
    for words in 'help doctor' 'doctor -h' 'doctor a.data --help'; do
        # shellcheck disable=SC2086
        run -0 "$DARKNET" cmn $words
        [[ ${#lines[@]} -eq 3 && ${lines[0]} == '  darknet cmn doctor DATA CFG' ]]
    done
}

@test "keys of a cfg that have no effect are named, with the nearest one; good cfgs have none" {
    not_offered 'own parser'
    mlp_cfg max_batches=2 lerning_rate=.1 mosaic=1 steps=5 qqqq=3 >mlp.cfg
    echo 'batch=4' | sed -i '/^qqqq/r /dev/stdin' mlp.cfg
    sed -i '0,/^activation/s//activaton/' mlp.cfg
    train_on 1 mlp.cfg
    for said in "lerning_rate=.1 has no effect: unknown key; did you mean learning_rate?" \
        "steps=5 has no effect without policy=steps" "qqqq=3 has no effect: unknown key" \
        "batch=[46]0* has no effect: the section has it twice, and the first one counts" \
        "activaton=relu has no effect: unknown key; did you mean activation?"; do
        [[ $(grep -cE "^cmn: mlp.cfg:[1-9][0-9]*: ${said//\?/\\?}\$" train.log) -eq 1 ]] || { echo "not said once: $said"; cat train.log; return 1; }
    done
    # Cfgs of AlexeyAB's Darknet have dozens of its keys: one line names them all, also when the cfg is refused further below.
    printf '%s\n' '[dropout]' ema_alpha=1 mosaic=2 activation=mish '[yolo]' classes=1 iou_loss=ciou >>mlp.cfg
    run -1 darknet_on 1 classifier train small.data mlp.cfg -cmn
    echo "$output" >train.log
    [[ $(grep -c "AlexeyAB's" train.log) -eq 1 ]]
    line() { sed -n "/^$1=/{=;q}" mlp.cfg; }
    grep -qxF "cmn: mlp.cfg: 4 lines have no effect: AlexeyAB's Darknet has these keys, this one has not: mosaic (line $(line mosaic)), ema_alpha (line $(line ema_alpha)), iou_loss (line $(line iou_loss))" train.log
    for cfg in "$REPO"/cfg/mnist_*.cfg; do
        sed 's/^max_batches=.*/max_batches=1/; s/^cmn_epochs/#/' "$cfg" >good.cfg
        train_on 1 good.cfg
        run -1 grep 'no effect' train.log
    done
}

@test "--version, help, -h: what people try first" {
    not_offered 'help and -h of commands'
    run -0 "$DARKNET" --version
    [[ ${lines[0]} =~ ^darknet-cmn\ [0-9]+\.[0-9]+\.[0-9]+$ && ${lines[1]} == *MPI* && ${lines[2]} == OpenBLAS* ]]
    for words in help --help -h; do
        run -0 "$DARKNET" $words
        [[ ${#lines[@]} -ge 24 && ${lines[1]} == '  cmn-run -n 4 -- darknet detector train DATA CFG -cmn' ]]
        [[ ${lines[5]} == 'Commands:' && ${lines[7]} == *' classifier train DATA CFG [WEIGHTS]' ]]
        grep -q ' detector train DATA CFG \[WEIGHTS\]$' <<<"$output"
    done
    for words in 'help detector train' 'detector train -h' 'detector train --help'; do
        # shellcheck disable=SC2086
        run -0 "$DARKNET" $words
        [[ ${lines[0]} == 'detector, options: -prefix NAME '*' -clear '* && ${lines[1]} == *' detector train DATA CFG [WEIGHTS]' ]]
        [[ ${lines[2]} == 'With -cmn many processes train one network:' && ${lines[3]} == *'cmn-run -n 4 -- darknet detector train ... -cmn' ]]
        [[ $output == *$'\n  darknet cmn doctor DATA CFG '* ]]
        # All keys, group by group, within a terminal's width.
        diff <(grep -oE '\bcmn_[a-z0-9_]+' <<<"$output") <("$DARKNET" cmn list | sed -n '/^Keys of/,$ s/^  \(cmn_[a-z0-9_]*\)=.*/\1/p')
        widest=$(sed -n '/^Keys/,/^Documents/p' <<<"$output" | sed 1d | wc -L)
        ((widest > 50 && widest <= 100))
        [[ -f $REPO/docs/README.md ]]
    done
    run -0 "$DARKNET" classifier valid -h
    [[ ${#lines[@]} -eq 5 && ${lines[2]} == 'With -cmn many processes divide the list, '* && -f $REPO/docs/use/evaluation.md ]]
    run -0 "$DARKNET" detector test -h
    [[ ${#lines[@]} -eq 2 ]]
    run -0 "$DARKNET" help detector
    [[ $output == *$'\nDocuments: docs/README.md, man darknet' ]]
    run -0 darknet_on 2 detector train -h -cmn # keys with their values: tests/cli/reference.bats
    [[ $(grep -c '^Keys of' <<<"$output") -eq 1 && $output != *'With -cmn many'* ]]
    fails_clearly_on 2 'not a command: detector trian; did you mean detector train\?$' detector trian a.data b.cfg -cmn
    fails_clearly_on 2 'not a command: clasifier train; did you mean classifier\?$' clasifier train a.data b.cfg -cmn
    fails_clearly_on 2 'cmn does not work with detector: one process does it' detector demo a.data b.cfg c -cmn
}

@test "options of AlexeyAB's Darknet are said to have no effect, and what there is instead" {
    not_offered "options are that Darknet's own"
    mlp_cfg max_batches=2 >mlp.cfg
    train_on 1 mlp.cfg -map -dont_show -mjpeg_port 8090
    [[ $(grep -c "^cmn: -.* of AlexeyAB's Darknet has no effect here: " train.log) -eq 2 ]]
    grep -q '^cmn: -map .*: with -cmn, cmn_validate computes the mAP' train.log
    [[ -s out/mlp$FINAL.weights ]]
    rm "out/mlp$FINAL.weights"
    "$DARKNET" classifier train small.data mlp.cfg -map -dont_show -mjpeg_port 8090 >alone.log 2>&1
    [[ $(grep -c "^cmn: -.* of AlexeyAB's Darknet has no effect here: " alone.log) -eq 2 && -s out/mlp$FINAL.weights ]]
}
