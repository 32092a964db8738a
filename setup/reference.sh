#!/usr/bin/env bash
# reference.sh makes pages from the tables of the programs in the folder BIN (`darknet cmn list -tsv`, `cmn-run -list`).
#
#   reference.sh tables BIN PAGE...         writes the tables of Markdown pages anew: those between `<!-- end -->` and one of the lines
#                                           `<!-- darknet cmn list -md SECTION -->`, `<!-- cmn-run -list -->`, `<!-- bench/results/FILE -->`
#   reference.sh man BIN VERSION PAGE       prints a man page: PAGE, with lines `@WORD` replaced by a table; statuses, files and the
#                                           environment are those of docs/reference/files.md
#   reference.sh completion BIN             prints the completion for bash of darknet and cmn-run
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)

tables() {
    local page line skip=0
    for page in "$@"; do
        while IFS= read -r line; do
            [[ $line != '<!-- end -->' ]] || skip=0
            ((skip)) || printf '%s\n' "$line"
            if [[ $line =~ ^'<!-- '(darknet cmn list -md ([a-z]+)|cmn-run -list|(bench/results/[a-z0-9-]+.json))' -->'$ ]]; then
                echo
                if [[ ${BASH_REMATCH[3]} ]]; then
                    jq -rf "$here/bench/table.jq" "$here/${BASH_REMATCH[3]}"
                elif [[ ${BASH_REMATCH[2]} ]]; then
                    "$bin/darknet" cmn list -md "${BASH_REMATCH[2]}"
                else
                    printf '| option | what it does |\n|---|---|\n'
                    "$bin/cmn-run" -list | awk -F '\t' '{ print "| `" $1 ($2 == "" ? "" : " " $2) "` | " $3 " |" }'
                fi
                echo
                skip=1
            fi
        done <"$page" >"$page.new"
        mv "$page.new" "$page"
    done
}

# man VERSION PAGE: words between backquotes become bold, and what roff would take for its own is escaped.
man() {
    {
        "$bin/darknet" cmn list -tsv
        "$bin/cmn-run" -list | sed 's/^/options\t/'
        # This prints the cells of a row of Markdown.
        awk -F ' *[|] *' -v OFS='\t' '
            /^## / { kind = tolower(substr($0, 4)); gsub(/ /, "-", kind) }
            /^\| / && $2 !~ /^(status|file|variable)$/ { print kind, $2, $3, $4 }' "$here/docs/reference/files.md"
    } | awk -F '\t' -v version="$1" -v program="$(basename "$2" .1)" '
        function roff(s) {
            gsub(/\\/, "\\e", s)
            gsub(/-/, "\\-", s)
            while (match(s, /`[^`]*`/))
                s = substr(s, 1, RSTART - 1) "\\fB" substr(s, RSTART + 1, RLENGTH - 2) "\\fR" substr(s, RSTART + RLENGTH)
            return s ~ /^[.\047]/ ? "\\&" s : s
        }
        function sentence(s) {
            if (s ~ /^[a-z]+([ ,]|$)/) s = toupper(substr(s, 1, 1)) substr(s, 2)
            return roff(s) "."
        }
        # Returns what stands behind -KEY: the words, or the unit of the number and its word.
        function value(range,   word) {
            if (range ~ /^[0-9]/) {
                if (match(range, /, or /)) word = " | " substr(range, RSTART + 5)
                sub(/, or .*/, "", range)
                sub(/^[0-9.]+ to [0-9.]+ ?/, "", range)
                gsub(/[()]/, "", range)
                return (range == "" ? "number" : range) word
            }
            if (range ~ /^auto, or a name/) return "auto | name"
            gsub(/, (or )?/, " | ", range)
            sub(/^file name/, "file", range)
            return range
        }
        function term(s) { print ".TP\n.B " roff(s) }
        function line(kind, i,   f) {
            split(row[kind, i], f, "\t")
            if (kind == "keys") {
                if (f[6] != group) print ".SS " (group = f[6])
                print ".TP\n.BI " roff("-" f[2]) " \" " value(f[4]) "\""
                print sentence(f[5]) "\n.br\n" (f[4] ~ /^[0-9]/ ? "Values: " roff(f[4]) ". " : "") "Default: " (f[3] == "(empty)" ? "empty" : roff(f[3])) "."
            } else if (kind == "communicators") {
                term(f[2])
                print sentence(f[5]) "\n.br\nOn the CPU: " roff(f[3]) ". On GPUs: " roff(f[4]) "."
            } else if (kind == "compressors") {
                term(f[2])
                print sentence(f[4]) "\n.br\nA node sends " roff(f[3]) " bytes in a step." (f[5] == "" ? "" : "\n.br\n" roff(f[5]) ".")
            } else if (kind == "options") {
                print ".TP\n.BI " roff(f[2]) (f[3] == "" ? "" : " \" " f[3] "\"")
                print sentence(f[4])
            } else if (kind == "tools" || kind == "elsewhere") {
                term(f[2])
                print sentence(f[3])
            } else if (index(f[3], program)) { # a table of files.md
                gsub(/`/, "", f[2])
                term(f[2])
                print sentence(f[4])
            }
        }
        function commands(does,   i, f) {
            for (i = 1; i <= n["commands"]; i++) {
                split(row["commands", i], f, "\t")
                if (f[3] == does) { term(f[2]); print sentence(f[4]) }
            }
        }
        FNR == NR { row[$1, ++n[$1]] = $0; next }
        { gsub(/@version@/, version) }
        /^@(trains|evaluates|refused)$/ { commands(substr($0, 2)); next }
        /^@/ {
            kind = substr($0, 2)
            if (!n[kind]) { print "reference.sh: no table " kind >"/dev/stderr"; exit 1 }
            for (i = 1; i <= n[kind]; i++) line(kind, i)
            next
        }
        { print }' - "$2"
}

completion() {
    cat <<'END'
# Completion for bash of darknet and cmn-run, made by setup/reference.sh from the tables of both programs.
# The arrays have the words of a command, its options, and the values of a key.
END
    "$bin/darknet" help | program=$bin/darknet awk '
        !found { found = /^Commands:$/; next }
        index($0, ENVIRON["program"] " ") == 1 { $0 = substr($0, length(ENVIRON["program"]) + 2) }
        sub(/, options:/, "") {
            for (i = 2; i <= NF; i++) if ($i ~ /^-/) options[$1] = options[$1] " " $i
            next
        }
        { verbs[$1] = verbs[$1] ($2 ~ /^[a-z]/ ? " " $2 : "") }
        END {
            for (v in verbs) print "declare -gA _darknet_verbs[" v "]=\"" substr(verbs[v], 2) "\""
            for (o in options) print "declare -gA _darknet_options[" o "]=\"" substr(options[o], 2) "\""
        }' | LC_ALL=C sort
    "$bin/darknet" cmn list -tsv | awk -F '\t' '
        $1 == "communicators" { names = names " " $2 }
        $1 == "tools" { split($2, word, " "); tools = tools " " word[3] }
        $1 == "keys" {
            words = ""
            if ($2 == "cmn_communicator") words = "auto" names
            else if ($4 ~ /^(file|folder)/) words = "" # bash completes file names
            else if ($4 ~ /^[a-z0-9_]+(, [a-z0-9_]+)+$/) { words = $4; gsub(/,/, "", words) }
            else if (match($4, /, or [a-z]+$/)) words = substr($4, RSTART + 5)
            print "declare -gA _darknet_keys[-" $2 "]=\"" words "\""
        }
        END { print "declare -gA _darknet_verbs[cmn]=\"" substr(tools, 2) "\"" }'
    "$bin/cmn-run" -list | awk -F '\t' '
        { print "declare -gA _cmn_run_options[" $1 "]=\"" $2 "\"" }'
    cat "$here/setup/completion.bash"
}

mode=${1:?usage: reference.sh tables|man|completion BIN ...} bin=${2:?the folder of the programs is missing}
case $mode in
    tables | man | completion) "$mode" "${@:3}" ;;
    *) echo "reference.sh: no mode '$mode'" >&2 && exit 2 ;;
esac
