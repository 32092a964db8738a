#!/usr/bin/env bats
# shellcheck disable=SC2154  # mpiexec: helpers.bash
# What is made from the tables of the programs: docs/reference/, man pages, completion.

load helpers

setup() {
    enter_folder
    bin=${DARKNET%/*}
}

@test "the tables of the documents are those of the programs" {
    cp "$REPO"/docs/{reference/keys,reference/communicators,reference/numbers,reference/commands,use/cmn-run}.md .
    # A row that is gone comes back.
    sed -i '/cmn_seed/d; /-wait SECONDS/d' keys.md cmn-run.md
    "$REPO/setup/reference.sh" tables "$bin" keys.md communicators.md numbers.md commands.md cmn-run.md
    for page in reference/keys reference/communicators reference/numbers reference/commands use/cmn-run; do
        diff "$REPO/docs/$page.md" "${page#*/}.md"
    done
    for section in communicators compressors keys numbers commands tools elsewhere; do
        [[ $(cat keys.md communicators.md numbers.md commands.md | grep -cx "<!-- darknet cmn list -md $section -->") -eq 1 ]]
        # Rows that differ only in their name are one row there, with all names.
        [[ $("$DARKNET" cmn list -md $section | awk -F ' [|] ' '/^[|] `/ { n += gsub(/`[^`]*`/, "", $1) } END { print n + 0 }') -eq \
            $("$DARKNET" cmn list -tsv | grep -c "^$section"$'\t') ]]
    done
}

@test "the tables of bench/README.md are those of the files in bench/results/, and each file has one, except for that of a chart" {
    cp "$REPO/bench/README.md" .
    sed -i '/^| .*shm /d' README.md
    "$REPO/setup/reference.sh" tables "$bin" README.md
    diff "$REPO/bench/README.md" README.md
    { echo mixed.json; sed -n 's|^<!-- bench/results/\(.*\) -->$|\1|p' README.md; } | sort | diff - <(cd "$REPO/bench/results" && ls)
}

@test "each number that Darknet's parser reads has its limits, and no other one has" {
    awk '/^[a-z_]+ \**parse_[a-z0-9_]+\(/ { section = $0; sub(/.*parse_/, "", section); sub(/\(.*/, "", section) }
        section == "net_options" { section = "net" }
        section == "network_cfg" { section = "layer" }
        {
            rest = $0
            while (match(rest, /(find_positive|find_padding|option_find_(int|float|numbers)[a-z_]*)\(options, "[A-Za-z0-9_]+"/)) {
                key = substr(rest, RSTART, RLENGTH)
                rest = substr(rest, RSTART + RLENGTH)
                gsub(/.*, "|"$/, "", key)
                print "[" section "] " key
            }
        }' "$REPO/build/darknet/src/parser.c" |
        grep -vE '^\[(rnn|gru|lstm|crnn|normalization)\] |^\[net\] time_steps$' | sort -u >asked # -cmn refuses them
    "$DARKNET" cmn list -tsv | awk -F '\t' '$1 == "numbers" && $2 !~ /^\[data\]/ && $4 !~ /AlexeyAB/ { print $2 }' | sort >listed
    # Lists are read as texts.
    for list in '[net] scales' '[net] steps' '[region] anchors' '[route] layers' '[shortcut] from' '[yolo] anchors' '[yolo] mask'; do
        echo "$list" >>asked
    done
    [[ $(wc -l <asked) -gt 140 ]]
    sort -u asked | diff - listed
}

@test "list names a wrong argument, and the nearest section" {
    run -1 "$DARKNET" cmn list -md key
    [[ $output == 'darknet cmn list: unknown section key: did you mean keys? Known are: communicators, '* ]]
    run -1 "$DARKNET" cmn list -tsv more
    [[ $output == 'darknet cmn list: unknown argument more; '* ]]
}

@test "-h beside -cmn shows the keys in their groups, and then what Darknet says" {
    "$DARKNET" cmn list -tsv | awk -F '\t' '$1 == "keys" && !seen[$6]++ { print $6 }' >groups
    [[ $(wc -l <groups) -eq 5 ]]
    "$DARKNET" detector train -cmn -h >help.txt
    "$DARKNET" -cmn --help >alone.txt
    for file in help.txt alone.txt; do
        diff groups <(grep -xFf groups $file)
        grep -A 2 '^  cmn_timeout=300$' $file | grep -x '      values: 1 to 1000000 seconds'
    done
    [[ $(tail -n 1 help.txt) == *' detector train DATA CFG [WEIGHTS]' ]]
}

# page NAME: builds the man page, and shows it in page.txt without complaints.
page() {
    "$REPO/setup/reference.sh" man "$bin" 1.2.3 "$REPO/docs/man/$1.1" >"$1.1"
    LC_ALL=C.UTF-8 MANWIDTH=150 man --warnings -E UTF-8 -l "$1.1" >page.txt 2>complaints
    cat complaints
    [[ -s page.txt && ! -s complaints ]]
    tail -n 1 page.txt | grep '^darknet-cmn 1\.2\.3 '
    for section in NAME SYNOPSIS DESCRIPTION OPTIONS EXAMPLES FILES ENVIRONMENT 'EXIT STATUS' 'SEE ALSO'; do
        grep -qx "$section" page.txt
    done
    run -1 grep -nE '[@`]|[|] or ' page.txt
    for status in 0 1 75 '128 + N'; do
        grep -qE "^ +${status/+/[+]}( |$)" page.txt
    done
}

@test "the man pages have every key and option with unit and default, and man finds no fault" {
    command -v man >/dev/null || skip 'man is not installed'
    page darknet
    # Behind a key stand its lines until the next one. Words begin a line of the page.
    "$DARKNET" cmn list -tsv >list.tsv
    awk -F '\t' 'FNR == NR { page = page "\n" $0 " "; sub(/^ +/, ""); begins = begins "\n" $0 " "; left--
            if (/^-cmn_/) { key = $0; left = key ~ /^-cmn_[a-z_0-9]+ [a-zA-Z]/ ? 10 : 0; sub(/ .*/, "", key) }
            if (left > 0) text[key] = text[key] $0 "\n"; next }
        $1 == "keys" { good = index(text["-" $2], "Default: " ($3 == "(empty)" ? "empty" : $3) ".")
            if ($4 ~ /^[0-9]/ && !index(text["-" $2], "Values: " $4 ".")) good = 0 }
        $1 ~ /^(communicators|compressors|elsewhere|tools)$/ { good = index(page, "       " $2) }
        $1 == "commands" { good = $3 == "refused" || index(begins, "\n" $2 " ") }
        $1 ~ /^(keys|communicators|compressors|elsewhere|tools|commands)$/ { seen[$1]++; if (!good) print "no " $1 " " $2 }
        END { for (section in seen) n++; if (n != 6) print n " sections" }' page.txt list.tsv >missing
    cat missing
    [[ ! -s missing ]]
    page cmn-run
    "$bin/cmn-run" -list | awk -F '\t' 'FNR == NR { sub(/^ +/, ""); begins = begins "\n" $0 " "; next }
        { option = $1 ($2 == "" ? "" : " " $2); if (!index(begins, "\n" option " ")) print "no " option }' page.txt - >missing
    cat missing
    [[ ! -s missing ]]
}

# asks WORD...: what completion offers for the last word goes to offered, a line each.
asks() {
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
    "$(complete -p "$1" | sed 's/.*-F \([^ ]*\) .*/\1/')"
    printf '%s\n' "${COMPREPLY[@]}" | sort >offered
}

# offers WORDS WORD...: exactly these words are offered.
offers() {
    asks "${@:2}"
    diff <(tr ' ' '\n' <<<"$1" | sort) offered
}

@test "completion in bash offers commands, tools, options, keys and their words" {
    "$REPO/setup/reference.sh" completion "$bin" >words.bash
    # shellcheck disable=SC1091
    load_it() { source ./words.bash; } # from a function, as bash-completion does
    load_it
    offers 'detector' darknet detec
    asks darknet ''
    run -1 grep -vxE -- '[a-z0-9]+|--version' offered
    offers 'test train' darknet detector t
    offers 'map' darknet detector m
    "$DARKNET" cmn list -tsv | awk -F '\t' '$1 == "tools" { split($2, word, " "); print word[3] }' | sort >tools
    asks darknet cmn ''
    diff tools offered
    offers 'table' darknet detector train a.data a.cfg -cmn -cmn_report t
    offers 'off on' darknet classifier train a.data a.cfg -cmn -cmn_sync_bn ''
    offers 'auto' darknet classifier train a.data a.cfg -cmn_cache_mb a
    offers 'single_node shm' darknet classifier train -cmn_communicator s
    offers '' darknet classifier train -cmn_json a
    offers '' darknet classifier train -cmn_chart o
    offers '-points -prefix' darknet detector map -p
    asks darknet classifier train a.data a.cfg -cmn_
    diff <("$DARKNET" cmn list -tsv | awk -F '\t' '$1 == "keys" { print "-" $2 }' | sort) offered
    asks darknet classifier train a.data a.cfg -
    run -1 grep cmn_ offered
    grep -qx -- -clear offered
    asks cmn-run -
    diff <({ echo --; "$bin/cmn-run" -list | cut -f 1; } | sort) offered
    offers '' cmn-run -n ''
    _comp_command_offset() { COMPREPLY=("command $1"); }
    for words in '-n 2 -- darknet cl' '-dry-run -n 2 darknet cl' '-dry-run -n 2 da'; do
        # shellcheck disable=SC2086
        asks cmn-run $words
        words=${words%%da*}
        [[ $(cat offered) == "command $(($(wc -w <<<"$words") + 1))" ]]
    done
}

# described SECTION: the names on the standard input are in a table of that section of files.md.
described() {
    # shellcheck disable=SC2016  # Markdown
    sed -n "/^## $1\$/,/^## /s/^|/|/p" "$REPO/docs/reference/files.md" | grep -oE '`[^`]+`' | tr -d '`' >section
    grep -vxFf section >missing || [[ $? -eq 1 ]] || return 1
    [[ ! -s missing ]] || { echo "files.md, $1: no $(<missing)"; return 1; }
}

@test "docs/reference/files.md has every JSON field, and every file that a training leaves" {
    command -v jq >/dev/null || skip 'jq is not installed'
    small_data 120 20
    mlp_cfg max_batches=10 >mlp.cfg
    mkdir logs
    OMPI_CMN_EVENT_TOKEN=12345678901234567890 darknet_on 2 classifier train small.data mlp.cfg -cmn -cmn_checkpoint 5 \
        -cmn_timeline trace.json -cmn_rank_logs logs >out.txt 2>err.txt || { cat err.txt; return 1; }
    fields='[.. | objects | keys[]] | unique[]'
    jq -r "$fields" out/mlp.json >log
    mark=$(grep -abo -m 1 'cmn checkpoint' out/mlp-10.checkpoint | cut -d : -f 1)
    length=$(od -A n -t u8 -j $((mark + 40)) -N 8 out/mlp-10.checkpoint)
    tail -c +$((mark + 65)) out/mlp-10.checkpoint >behind
    head -c "$((length))" behind | jq -r "$fields" >header
    jq -r "$fields" trace.json >trace
    sed -n 's/^cmn-event:12345678901234567890 //p' err.txt | jq -r "$fields" | sort -u >events
    # Those that only some rows have, too.
    source_of() { grep -hoE '(cJSON_Add[A-Za-z]+|number)\([a-z]+, "[^"]+"' "$@" | sed 's/.*"\(.*\)"/\1/'; }
    { cat log; source_of "$REPO/cmn/report/json_log.c"; sed -n 's/^    {"\(.*\)", AT.*/\1/p' "$REPO/cmn/report/row.c"; } | sort -u >all
    wc -l all header trace events
    [[ $(wc -l <all) -ge 20 && $(wc -l <header) -ge 40 && $(wc -l <trace) -ge 20 && $(wc -l <events) -eq 6 ]]
    described 'JSON log' <all
    described Checkpoint <header
    described Timeline <trace
    while IFS= read -r name; do
        grep -qE "^ \* (.*[ ,:])?$name\b" "$REPO/cmn/base/job_stderr.h" || { echo "job_stderr.h: no $name"; return 1; }
    done <events
    source_of "$REPO/cmn/evaluators/map_table.c" | described 'detector map -json'
    find out logs -type f -printf '%f\n' | sed -E 's/^\.mlp/.NAME/; s/^mlp/NAME/; s/[0-9]+/N/' | sort -u | described Files
}
