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
        function row(class, text) {
            gsub(/&/, "\\&amp;", text); gsub(/</, "\\&lt;", text); gsub(/>/, "\\&gt;", text)
            rows = rows sprintf("<text class=\"%s\" x=\"16\" y=\"%d\">%s</text>\n", class, 34 + 18 * n++, text)
        }
        BEGIN { row("p", "$ " command); row("d", "…") }
        { row(/^\[/ ? "b" : /^epoch/ ? "h" : /^(Saving|  ms)/ ? "d" : "t", $0) }
        END {
            printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-size=\"12\">\n", columns * 7.23 + 32, 34 + 18 * n
            print "<style>text{font-family:DejaVu Sans Mono,Menlo,Consolas,monospace;white-space:pre;fill:#d7dce2}"
            print ".p{fill:#fff;font-weight:bold}.d{fill:#8b949e}.h{fill:#79c0ff}.b{fill:#7ee787}</style>"
            print "<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#161b22\"/>"
            printf "%s</svg>\n", rows
        }' >docs/images/terminal.svg
