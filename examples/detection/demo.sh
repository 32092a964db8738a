#!/usr/bin/env bash
# demo.sh: trains a small YOLOv3 on NP ranks, says its mAP, and draws what it finds. `make demo-detection` prepares what it
# needs and starts it with DARKNET (the program), SHEET (the one that draws), LETTERS (Darknet's pictures of letters), MPIEXEC
# (how to start ranks) and NP (how many).
set -euo pipefail

cd "$(dirname "$0")/../.."
darknet=${DARKNET:-bin/darknet} sheet=${SHEET:-build/cpu/sheet} letters=${LETTERS:-build/darknet/data/labels}
read -r -a mpiexec <<<"${MPIEXEC:-mpiexec --oversubscribe}"
np=${NP:-2}
data=cfg/digits.data cfg=cfg/digits_yolo.cfg
results=results/detection
weights=$results/digits_yolo_final.weights log=$results/digits_yolo.json chart=$results/chart.png
map=$results/map.json picture=$results/predictions

# On a terminal the program shows its table and a progress bar. Elsewhere Darknet's own lines come between the rows, for
# scripts that read them; a log is easier to read without. Ctrl-C is for the program alone: the filter must outlive it to pass
# on its last words.
readable() {
    if [[ -t 1 ]]; then
        "$@"
    else
        "$@" | (trap '' INT TERM; sed -u -e '/^Loaded: [0-9.]* seconds/d' -e '/^Region [0-9]* Avg IOU/d' \
            -e '/^[0-9]*, [0-9.]*: .* images\r*$/d' -e '/^[0-9]*: [0-9.]*, .* images\r*$/d')
    fi
}

mkdir -p "$results"
# What an earlier run left must not pass for this one's.
rm -f "$weights" "$log" "$chart" "$map" "$picture.png"

readable "${mpiexec[@]}" -n "$np" "$darknet" detector train "$data" "$cfg" -cmn -cmn_report_every 50 -cmn_chart "$chart"
"${mpiexec[@]}" -n "$np" "$darknet" detector map "$data" "$cfg" "$weights" -json "$map" -cmn
"$sheet" "$data" "$cfg" "$weights" "$letters" 12 "$picture" >"$results/sheet.log" 2>&1 ||
    { cat "$results/sheet.log" >&2; exit 1; }
rm "$results/sheet.log"
percent=$(jq -r '.map50 // empty | 100 * . | . * 10 | round / 10' "$map")
echo "mAP@0.5 $percent %; weights, log, chart, mAP and picture: $weights, $log, $chart, $map, $picture.png"
