#!/bin/bash
# Draws the efficiency over the ranks, at 25 Gbit/s and with overlap, from the table of simulated steps in bench/README.md,
# beside what others have published. Usage: bench/scale-chart.sh bench/scale.svg
set -euo pipefail

chart=${1:?scale-chart.sh FILE.svg}
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
nets=('MLP' 'ResNet-50' 'VGG-16' 'yolov4')

for net in "${nets[@]}"; do
    awk -F' *[|] *' -v net="$net" '$2 == net && $4 == 25 && match($6, /[(][0-9]+/) { print $3, substr($6, RSTART + 1, RLENGTH - 1) }' \
        bench/README.md | sort -n >"$work/$net"
    [[ -s $work/$net ]] || { echo "scale-chart: bench/README.md has no $net at 25 Gbit/s" >&2; exit 1; }
done

plots=() i=0
for net in "${nets[@]}"; do
    i=$((i + 1))
    plots+=("'$work/$net' with linespoints lw 2.5 pt $((3 + 2 * i)) ps 1.$((6 - i)) lc $i title '$net, simulated'")
done
gnuplot <<GNUPLOT
set terminal svg size 800,360 background 'white' font 'sans,13'
set output '$chart'
set logscale x 2
set xlabel 'ranks, or GPUs'
set ylabel 'efficiency, %'
set xrange [48:1500]
set yrange [40:105]
set xtics (64, 128, 256, 512, 1024)
set grid y
set key outside right samplen 1.5 spacing 1.3 font 'sans,11'
\$chainermn << EOD
128 90
1024 80
EOD
\$horovod << EOD
512 90
EOD
\$horovod_vgg << EOD
512 68
EOD
\$sony << EOD
1088 91.6
EOD
plot $(IFS=,; echo "${plots[*]}"), \\
    \$chainermn with points pt 4 ps 1.3 lw 2 lc 2 title 'ChainerMN, ResNet-50', \\
    \$horovod with points pt 8 ps 1.3 lw 2 lc 2 title 'Horovod, ResNet-101', \\
    \$horovod_vgg with points pt 8 ps 1.3 lw 2 lc 3 title 'Horovod, VGG-16', \\
    \$sony with points pt 12 ps 1.3 lw 2 lc 2 title 'Sony, ResNet-50'
GNUPLOT
