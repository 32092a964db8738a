#!/usr/bin/env bash
# Draws the charts of what was measured, from the files of bench/results/: bench/scale.svg, bench/bf16.svg, docs/images/speed.svg.
# Usage: make bench-docs
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# plot SETTING...: draws what the array `plots` lists.
plot() {
    (
        printf '%s\n' "set grid y; set key noenhanced samplen 1.5 spacing 1.3 font 'sans,11'" "$@"
        IFS=,
        echo "plot ${plots[*]}"
    ) | gnuplot
}

svg() {
    echo "set terminal svg size $2 background 'white' font 'sans,13'; set output '$1'"
}

# ---- bench/scale.svg: the efficiency over the ranks, at 25 Gbit/s and with overlap, beside what others have published ----

plots=() i=0
while read -r net; do
    jq -r --arg net "$net" '.rows | map(select(.net == $net and ."Gbit/s" == 25)) | sort_by(.ranks)[] |
        "\(.ranks) \(.halving | capture("[(](?<part>[0-9]+)").part)"' bench/results/simulate.json >"$work/$net"
    i=$((i + 1))
    plots+=("'$work/$net' with linespoints lw 2.5 pt $((3 + 2 * i)) ps 1.$((6 - i)) lc $i title '$net, simulated'")
done < <(jq -r '[.rows[] | select(."Gbit/s" == 25).net] | reduce .[] as $net ([]; . + ([$net] - .)) | .[]' bench/results/simulate.json)
plots+=("\$chainermn with points pt 4 ps 1.3 lw 2 lc 2 title 'ChainerMN, ResNet-50'"
    "\$horovod with points pt 8 ps 1.3 lw 2 lc 2 title 'Horovod, ResNet-101'" "\$vgg with points pt 8 ps 1.3 lw 2 lc 3 title 'Horovod, VGG-16'"
    "\$sony with points pt 12 ps 1.3 lw 2 lc 2 title 'Sony, ResNet-50'")
plot "$(svg bench/scale.svg 800,360)" "set key outside right; set logscale x 2; set xrange [48:1500]; set yrange [40:105]" \
    "set xlabel 'ranks, or GPUs'; set ylabel 'efficiency, %'; set xtics (64, 128, 256, 512, 1024)" \
    $'$chainermn << E\n128 90\n1024 80\nE' $'$horovod << E\n512 90\nE' $'$vgg << E\n512 68\nE' $'$sony << E\n1088 91.6\nE'

# ---- bench/bf16.svg: the loss over the iterations ----

plots=() i=1
jq -r '.rows[] | [.[]] | @tsv' bench/results/mixed.json >"$work/loss"
while read -r title; do
    i=$((i + 1))
    plots+=("'$work/loss' using 1:$i with lines lw 2 title '$title'")
done < <(jq -r '.rows[0] | keys_unsorted[1:][]' bench/results/mixed.json)
plot "$(svg bench/bf16.svg 560,300)" "set logscale y; set xlabel 'iteration'; set ylabel 'loss'"

# ---- docs/images/speed.svg: images/s beside the peers, each at its best ----

# points PATTERN PROGRAM: "ranks images/s" for each column that the pattern names.
points() {
    jq -r --arg pattern "$1" --arg program "$2" '.rows[] | select(."images/s" == $program) | to_entries[] | select(.value != "") |
        (.value | tostring | split(" ")[0]) as $speed | .key | capture($pattern) | "\(.n) \($speed)"' bench/results/peers.json
}

mapfile -t nets < <(jq -r '.rows[0] | keys_unsorted[] | capture("(?<net>.*), 1 rank$").net' bench/results/peers.json)
mapfile -t programs < <(jq -r '.rows[]."images/s" | select(test("tutorial|products") | not)' bench/results/peers.json)
wide=$((205 + 335 * ${#nets[@]})) panels=()
for ((i = 0; i < ${#nets[@]}; i++)); do
    plots=()
    for ((k = 0; k < ${#programs[@]}; k++)); do
        points "^${nets[i]}, (?<n>[0-9]+) ranks?$" "${programs[k]}" >"$work/$i.$k"
        plots+=("'$work/$i.$k' with linespoints lw 2.5 pt 7 lc $((k + 1)) title '${programs[k]}'")
        points "^${nets[i]}, (?<n>[0-9]+) threads$" "${programs[k]}" >"$work/$i.$k.threads"
        [[ ! -s $work/$i.$k.threads ]] || plots+=("'$work/$i.$k.threads' with points pt 6 ps 1.4 lw 2 lc $((k + 1)) title '1 process, threads'")
    done
    panels+=("set title \"${nets[i]}\" font 'sans,12'"
        "set lmargin screen $((80 + 335 * i)) / $wide.; set rmargin screen $((325 + 335 * i)) / $wide.")
    ((i + 1 < ${#nets[@]})) || panels+=('set key at screen 0.99, 0.85 right')
    panels+=("plot $(IFS=, && echo "${plots[*]}")")
done
unset 'panels[-1]'
cores=$(awk '$1 > most { most = $1 } END { print most }' "$work/0.0")
plot "$(svg docs/images/speed.svg $wide,320)" "set multiplot; unset key; set xlabel 'ranks, or threads of 1 process'; set ylabel 'images/s' offset 1.5" \
    "set xrange [0.8:$cores.2]; set yrange [0:*]; set xtics 1; set offsets 0, 0, graph 0.08, 0" \
    "set tmargin screen 0.88; set bmargin screen 0.2" "${panels[@]}"
