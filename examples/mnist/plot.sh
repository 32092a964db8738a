#!/usr/bin/env bash
# plot.sh LOG.json OUT.png: draws loss and accuracy over the epochs, from the log that training writes.
set -euo pipefail

if [[ $# -ne 2 ]]; then
    echo "usage: $0 LOG.json OUT.png" >&2
    exit 2
fi
log=$1 out=$2
table=$(mktemp)
trap 'rm -f "$table" "$out.new"' EXIT

fail() {
    echo "plot: $*" >&2
    exit 1
}

# One line per row of the log; "nan" where a row has no such value: gnuplot draws on over such a row, but only where it
# reads the column as it is, so per cent are made here.
jq -r 'def percent: if . then 100 * . else null end;
    .[] | [.epoch, .["main/loss"], .["validation/main/loss"], (.["main/accuracy"] | percent),
        (.["validation/main/accuracy"] | percent)]
    | map(. // "nan") | @tsv' "$log" >"$table" 2>/dev/null || fail "$log: not a training log"
[[ -s $table ]] || fail "$log: holds no row"

# A name between gnuplot's single quotes: a quote in it is doubled.
quoted() {
    printf "'%s'" "${1//\'/\'\'}"
}

rm -f "$out.new"
gnuplot <<GNUPLOT || fail "$out: cannot be drawn"
set terminal pngcairo size 1200,480 font 'DejaVu Sans,11' background '#ffffff'
set output $(quoted "$out.new")
table = $(quoted "$table")
set datafile missing 'nan'
set multiplot layout 1,2 margins 0.065,0.985,0.13,0.90 spacing 0.09,0

set border 3 linecolor '#888888'
set tics nomirror scale 0.5 textcolor '#333333'
set grid linecolor '#dddddd' linewidth 1 linetype 1
set xlabel 'epoch' textcolor '#333333'
set xrange [0:*]
set style line 1 linecolor '#1f6fb4' linewidth 2 pointtype 7 pointsize 0.6
set style line 2 linecolor '#d9541e' linewidth 2 pointtype 7 pointsize 1.1

# Rows with validation are few, the others may be many: points only where they help.
stats table using 1 nooutput
style = STATS_records > 40 ? 'lines' : 'linespoints'

set title 'loss' font ',13' textcolor '#222222'
set key top right reverse Left textcolor '#333333'
set yrange [0:*]
plot table using 1:2 with @style linestyle 1 title 'training', \
     table using 1:3 with linespoints linestyle 2 title 'validation'

set title 'accuracy, %' font ',13' textcolor '#222222'
set key bottom right
set yrange [*:100]
plot table using 1:4 with @style linestyle 1 title 'training', \
     table using 1:5 with linespoints linestyle 2 title 'validation'
unset multiplot
set output
GNUPLOT
[[ -s $out.new ]] || fail "$out: cannot be written"
mv -- "$out.new" "$out"
