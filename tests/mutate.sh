#!/usr/bin/env bash
# mutate.sh [FOLDER|FILE]...: how much the tests see. It breaks one line of cmn/ and run/ (or of what is named) at a time, in a
# copy, and runs the tests of that line's room, tests/unit/ROOM, tests/ranks/ROOM on 2 and 3 ranks and tests/gpu/ROOM on 2, and
# then TIERS.
#
# Usage: make tests && nice tests/mutate.sh, best by a user who is not root: a broken program may put a file in the place of
# /dev/null. N=30 lines are drawn with SEED=1, each as likely as any other; TIERS='' leaves the command line out. For each of them
# it says what became of it:
#
#   killed      a test failed, or took four times as long as with unbroken code and 20 s more (a hang: "the limit of … s")
#   survived    no test noticed
#   same        the compiler makes the same code of it, for the CPU and for the stand-in of GPUs
#   no compile  the compiler refuses it, or warns, which tests/cli/make.bats refuses
set -euo pipefail
cd "$(dirname "$0")/.."

: "${SEED:=1}" "${N:=30}" "${TIERS=cli/batch_semantics cli/valid cli/epochs}"
scratch=$(mktemp -d "${TMPDIR:-/tmp}/cmn-mutate.XXXXXX")
copy=$scratch/copy session=''
end_session() { [[ -z $session ]] || pkill -KILL -s "$session" || true; }
trap 'end_session; rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM

# draw: lines "FILE<tab>LINE<tab>KIND<tab>TEXT", where TEXT is the broken line.
draw() {
    # shellcheck disable=SC2016  # awk
    find "$@" -name '*.c' ! -name tree_alexeyab.c | LC_ALL=C sort | LC_ALL=C xargs awk -v seed="$SEED" -v most="$N" '
        # The line with "#" for each character of its strings and comments.
        function masked(s) {
            while (match(s, /"([^"\\]|\\.)*"|\047([^\047\\]|\\.)*\047|\/\*.*|^ +\*([ \/].*)?$/))
                s = substr(s, 1, RSTART - 1) substr(hidden, 1, RLENGTH) substr(s, RSTART + RLENGTH)
            return s
        }
        function add(kind, at, size, text) {
            if (!(kind in found)) kinds[++known] = kind
            broken[kind, ++found[kind]] = substr(line, 1, at - 1) text substr(line, at + size)
        }
        # Where the bracket at `at` is closed on this line, or 0; cut[1] to cut[cuts] are the commas between.
        function closing(at,    i, c, depth) {
            cuts = 0
            for (i = at; i <= length(code); i++) {
                c = substr(code, i, 1)
                if (c ~ /[([{]/) depth++
                else if (c ~ /[])}]/ && !--depth) return i
                else if (c == "," && depth == 1) cut[++cuts] = i
            }
            return 0
        }
        function operators(    k, at, from) {
            for (k in old)
                for (from = 1; (at = index(substr(code " ", from), " " old[k] " ")); from += at)
                    add("operator", from + at, length(old[k]), new[k])
        }
        function constants(    from, at, number) {
            for (from = 1; match(substr(code, from), /[A-Za-z0-9_.]+/); from = at + RLENGTH) {
                number = substr(code, at = from + RSTART - 1, RLENGTH)
                if (number ~ /^[0-9]+$/) {
                    add("constant", at, RLENGTH, number + 1)
                    if (number > 0) add("constant", at, RLENGTH, number - 1)
                }
            }
        }
        function condition(    at, end) {
            if (match(code, /(if|while) \(/) && (end = closing(at = RSTART + RLENGTH - 1)))
                add("condition", at, end - at + 1, "(!" substr(line, at, end - at + 1) ")")
        }
        # Without `free` nothing is computed differently.
        function calls(    from, at, end, i, first, second, blank) {
            for (from = 1; match(substr(code, from), /[A-Za-z_0-9]+\(/); from = at + 1) {
                at = from + RSTART + RLENGTH - 2
                if (substr(code, 1, at) ~ /sizeof\($/ || !(end = closing(at))) continue
                if (substr(code, 1, at) ~ /^ +(\(void\))?[A-Za-z_0-9]+\($/ && substr(code, end) == ");" && code !~ /^ +free\(/)
                    add("call", 1, length(line), ";")
                cut[0] = at; cut[cuts + 1] = end
                for (i = 1; i <= cuts; i++) {
                    first = substr(line, cut[i - 1] + 1, cut[i] - cut[i - 1] - 1); blank = sub(/^ /, "", first) ? " " : ""
                    second = substr(line, cut[i] + 1, cut[i + 1] - cut[i] - 1); sub(/^ /, "", second)
                    add("arguments", cut[i - 1] + 1, cut[i + 1] - cut[i - 1] - 1, blank second ", " first)
                }
            }
        }
        BEGIN { hidden = sprintf("%999s", ""); gsub(/ /, "#", hidden) }
        { file[NR] = FILENAME; number_of[NR] = FNR; text[NR] = $0; codes[NR] = masked($0) }
        END {
            split("< <= > >= == != && || + - * / % += -=", old, " ")
            split("<= < >= > != == || && - + / * * -= +=", new, " ")
            srand(seed)
            for (tries = 0; drawn < most && tries < 100 * most; tries++) {
                at = 1 + int(rand() * NR); line = text[at]; code = codes[at]
                if (code !~ /^ /) continue
                known = 0; split("", found)
                operators(); constants(); condition(); calls()
                if (!known) continue
                text[at] = ""; codes[at] = ""; drawn++
                kind = kinds[1 + int(rand() * known)]
                print file[at] "\t" number_of[at] "\t" kind "\t" broken[kind, 1 + int(rand() * found[kind])]
            }
        }'
}

# names FILE: sets tests to those of its room, as tests/run.sh calls them.
names() {
    local room=${1#cmn/}
    mapfile -t tests < <(cd tests && printf '%s\n' {unit,ranks,gpu}/"${room%%/*}"/*.c | sed '/\*/d; s/\.c$//; s/^ranks.*/&-2\n&-3/; s/^gpu.*/&-2/')
}

# built TARGET...: below build/cpu/ of the copy.
built() { make -C "$copy" -s "${@/#/build/cpu/}" >"$scratch/made" 2>&1; }
# built_tests: those in tests, and with TIERS what they run.
built_tests() {
    local -a programs=("${tests[@]/#/tests/}")
    built "${programs[@]%-[23]}" ${TIERS:+bin/darknet bin/cmn-run}
}
# code FILE NAME: what is made of that file of the copy, without what debuggers read. There is no stand-in for run/.
code() {
    local object=${1%.c}.o
    local -a objects=("$object")
    [[ $1 != cmn/* ]] || objects+=("fake/$object")
    built "${objects[@]}" && ! grep -q 'warning:' "$scratch/made" || return 1
    for object in "${objects[@]}"; do
        objcopy --strip-debug "$copy/build/cpu/$object" "$scratch/stripped.o" && cat "$scratch/stripped.o"
    done >"$scratch/$2.o"
}

# passes NAME SECONDS: whether that test passes in the copy; `why` says what did not.
passes() {
    local status=0
    (cd "$copy" && TMPDIR=$scratch/tmp exec setsid timeout "$2" tests/run.sh "$1" >"$scratch/said" 2>&1 </dev/null) &
    session=$!
    wait "$session" || status=$?
    end_session
    session=''
    why="by $1: $(sed -n '/^not ok/{s/^not ok [0-9 -]*//p;q}' "$scratch/said")"
    ((status != 124)) || why="by $1: the limit of $2 s"
    ((status == 0))
}

# judge FILE: sets verdict and why for the broken file in the copy.
judge() {
    local name
    verdict='no compile' why=''
    code "$1" broken || return 0
    verdict=same
    ! cmp -s "$scratch/broken.o" "$scratch/whole.o" || return 0
    verdict=killed why='by the linker'
    built_tests || return 0
    for name in "${tests[@]}" $TIERS; do
        passes "$name" "${limit[$name]}" || return 0
    done
    verdict=survived why=''
}

(($#)) || set -- cmn run
draw "$@" >"$scratch/mutants"
mkdir -p "$copy/build" "$scratch/tmp"
git ls-files -z | xargs -0 cp -a --parents -t "$copy"
cp -a build/cpu build/darknet build/*.list "$copy/build"
[[ ! -d data ]] || ln -s "$PWD/data" "$copy/data"

declare -A limit=() count=()
while IFS=$'\t' read -r file line kind text; do
    # With unbroken code each test passes, and shows how long it takes.
    names "$file"
    for name in "${tests[@]}" $TIERS; do
        [[ -z ${limit[$name]:-} ]] || continue
        built_tests || { cat "$scratch/made"; exit 1; }
        began=$SECONDS
        passes "$name" 600 || { echo "with unbroken code: failed $why"; exit 1; }
        limit[$name]=$((4 * (SECONDS - began) + 20))
    done
    code "$file" whole
    MUTANT=$text awk -v at="$line" '{ print NR == at ? ENVIRON["MUTANT"] : $0 }' "$file" >"$copy/$file"
    judge "$file"
    cp "$file" "$copy/$file"
    count[$verdict]=$((${count[$verdict]:-0} + 1))
    printf '%-10s %s:%d, %s %s\n    - %s\n    + %s\n' "$verdict" "$file" "$line" "$kind" "$why" "$(sed -n "$line{s/^ *//;p}" "$file")" "${text#"${text%%[! ]*}"}"
done <"$scratch/mutants"
killed=${count[killed]:-0} survived=${count[survived]:-0}
printf '%d of %d killed; %d the same, %d do not compile\n' "$killed" $((killed + survived)) "${count[same]:-0}" "${count[no compile]:-0}"
