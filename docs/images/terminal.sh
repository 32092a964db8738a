#!/usr/bin/env bash
# Draws terminal.svg: what a terminal shows in the third epoch of the training that `make demo` runs. In a built tree, after `make mnist`.
set -euo pipefail
cd "$(dirname "$0")/../.."

columns=132
command='cmn-run -n 2 -- darknet classifier train cfg/mnist.data cfg/mnist_mlp.cfg -cmn'
mkdir -p results/mnist
PATH=$PWD/bin:$PATH script -qec "stty cols $columns; $command" /dev/null </dev/null |
    # A progress bar overwrites the one before it: only the last one is seen.
    tr '\r' '\n' | sed "s/\x1b\[K//g; s/ *$//" |
    awk '/^cmn: 2 ranks/ { seen = 1 } !seen || !NF { next } /^\[/ { if (/ epoch 2\.4/) { print; exit } next } { print }' |
    fold -w "$columns" |
    awk -v columns="$columns" -v command="$command" '
        function row(fill, text) {
            gsub(/&/, "\\&amp;", text); gsub(/</, "\\&lt;", text); gsub(/>/, "\\&gt;", text)
            rows = rows sprintf("<text fill=\"%s\" x=\"16\" y=\"%d\">%s</text>\n", fill, 34 + 18 * n++, text)
        }
        BEGIN { row("#ffffff", "$ " command); row("#8b949e", "…") }
        { row(/^\[/ ? "#7ee787" : /^epoch/ ? "#79c0ff" : /^(Saving|  ms)/ ? "#8b949e" : "#d7dce2", $0) }
        END {
            printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" xml:space=\"preserve\"", columns * 7.23 + 32, 34 + 18 * n
            print " font-family=\"DejaVu Sans Mono,Menlo,Consolas,monospace\" font-size=\"12\">"
            print "<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#161b22\"/>"
            printf "%s</svg>\n", rows
        }' >docs/images/terminal.svg
