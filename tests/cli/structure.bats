#!/usr/bin/env bats
# shellcheck disable=SC2030,SC2031  # tests are functions that shellcheck takes for subshells
# How the source is laid out: docs/internals/architecture.md in the form of checks.

load helpers

setup() {
    enter_folder
    cd "$REPO" || return 1
}

own_files() {
    git ls-files -- "$@" 2>/dev/null | grep . || find "$@" -type f
}

# scripts SHELL: the files whose first line names it.
scripts() {
    # shellcheck disable=SC2016  # of awk
    own_files . | grep -vE '^(\./)?(build|bin|data|results|\.git)/' |
        xargs -d '\n' awk -v shell="^#!.*[ /]$1( |\$)" 'FNR == 1 && $0 ~ shell { print FILENAME } { nextfile }'
}

@test "rooms of cmn/ point one way, and only engine/ and hooks/ know Darknet" {
    tests/rooms.sh "$BUILD/cmn"
    # What is compiled for GPUs alone, too.
    tests/rooms.sh "$BUILD/fake/cmn"
}

# knows_tree: the files of the module, in the folder one is in, that know which tree of Darknet is built and should not. People write
# AlexeyAB's; a file, a macro or a function is in one case. What the trees differ in is only to be had from darknet_tree.h.
knows_tree() {
    grep -rlE 'alexeyab|ALEXEYAB' cmn Makefile ./*/*.mk | grep -vxE 'cmn/engine/(README.md|darknet_tree.h|tree_alexeyab.c)|Makefile|./darknet/darknet.mk|./tests/(tests|tree).mk' || true
    grep -rn CMN_ALEXEYAB cmn Makefile ./*/*.mk || true
    grep -rlE 'cmn_tree|darknet_tree\.h' cmn | grep -vE '^cmn/(engine|hooks)/' || true
    # Both files, for each name of the header.
    for file in cmn/engine/tree_{pjreddie,alexeyab}.c; do
        comm -23 <(grep -oE '\bcmn_tree(_[a-z_]+\(|;)' cmn/engine/darknet_tree.h | tr -d '(;' | sort -u) \
            <(sed -nE 's/^[a-z].*\b(cmn_tree[a-z_]*)( = \{|\().*/\1/p' "$file" | sort) | sed "s|^|$file has no |"
    done
}

@test "nothing outside of engine/ and hooks/ knows which tree of Darknet is built, and there one file of the two does" {
    said=$(knows_tree)
    echo "$said"
    [[ -z $said ]]
    copy=$BATS_TEST_TMPDIR/tree
    mkdir "$copy"
    cp -r --parents cmn Makefile ./*/*.mk "$copy"
    cd "$copy"
    echo '#ifdef CMN_ALEXEYAB' >>cmn/engine/net.c
    echo '#include "engine/darknet_tree.h"' >>cmn/data/sampler.c
    echo 'int is_alexeyab;' >>cmn/base/log.c
    sed -i 's/^float cmn_tree_loss/float loss/' cmn/engine/tree_alexeyab.c
    diff <(knows_tree | sed 's/:.*//' | sort -u) - <<'END'
cmn/base/log.c
cmn/data/sampler.c
cmn/engine/net.c
cmn/engine/tree_alexeyab.c has no cmn_tree_loss
END
}

# What -cmn refuses of AlexeyAB's keys and options has a reason for users, too.
@test "docs/use/alexeyab.md names what is refused of AlexeyAB's tree" {
    keys=$({
        sed -nE 's/^        \{"([A-Za-z_-]+)", .*/\1/p' cmn/engine/tree_alexeyab.c
        sed -nE 's/^    \{"\[[a-z]+\]", "\[[a-z]+\]", "([a-zA-Z_]+)", .*, OTHER, .*/\1/p' cmn/config/refused_layers.c
    })
    [[ $(wc -l <<<"$keys") -ge 10 ]]
    while IFS= read -r key; do
        grep -qE "^\| .*\`$key(=1)?\`.* \|" docs/use/alexeyab.md || { echo "no row for $key"; false; }
    done <<<"$keys"
}

@test "the check of rooms sees an include, a call, a circle and Darknet where they should not be" {
    copy=$BATS_TEST_TMPDIR/copy
    mkdir -p "$copy/tests"
    cp -r cmn "$copy/"
    cp tests/rooms.sh "$copy/tests/"
    cp -r "$BUILD/cmn" "$copy/objects"
    cd "$copy"
    printf '%s\n' '#include "trainer/step.h"' '#include "base/log.h"' >cmn/base/odd.c
    touch cmn/base/odd.h
    sed -i '1i #include "base/odd.h"' cmn/base/log.h
    echo 'int cmn_model_validates(void); int odd(void); int odd(void) { return cmn_model_validates(); }' >cmn/data/calls.c
    echo '#include "darknet.h"' >cmn/data/reads.c
    for unit in base/odd data/calls data/reads; do
        mpicc -std=c11 -D_GNU_SOURCE -Icmn -isystem "$REPO/build/darknet/include" -isystem "$REPO/build/darknet/src" -MD -c \
            -o "objects/$unit.o" "cmn/$unit.c"
    done
    run -1 tests/rooms.sh objects
    echo "$output"
    for line in 'base/odd.c names trainer/step.h: trainer/ is below base/' 'data/calls.c calls cmn_model_validates: trainer/ is below data/' \
        "data/reads.c reads Darknet's darknet.h" 'a circle inside base/: .*base/odd'; do
        grep -E "$line" <<<"$output"
    done
}

# Words that only this project ever used, for which MPI, Horovod and PyTorch have their own (CONTRIBUTING.md). Exceptions: sed's, below.
PRIVATE='arenas?|tall(y|ies)|pure gradients?|stale|meetings?|codecs?|narrow(s|ed)?|widen(s|ed)?|past the caches|alike|tickets?'
PRIVATE+='|outlines?|contest(ant)?s?|verdicts?|judg(e|es|ed)|facts?|signs? of life|stand(s|ing)? still|stood still|speakers?|strangers?'
PRIVATE+='|last word|(go|goes|going|went) on|owed|settle(s|d)?|wish(es)? to stop|aside|numbers? that (is|are) none|ceilings?'
PRIVATE+='|lend|lent|lends|takes? back|pieces?|flow'

@test "names, comments, messages and documents use the words of the field" {
    own_files cmn run docs bench setup examples CONTRIBUTING.md README.md Makefile tests/tests.mk fuzz/fuzz.mk | grep -v '\.png$' >"$BATS_TEST_TMPDIR/files"
    # A caller that can go on is no resumed training; M_ARENA_MAX is the C library's.
    said=$(xargs -d '\n' -a "$BATS_TEST_TMPDIR/files" sed -E 's/(caller|that) (can )?goe?s? on//g; s/M_ARENA_MAX//; s/^/ /; s/$/ /' -s |
        grep -iE "[^a-z]($PRIVATE)[^a-z]" || true)
    named=$(grep -iE "[^a-z]($PRIVATE)[^a-z]" "$BATS_TEST_TMPDIR/files" || true)
    echo "$said$named"
    [[ -z $said && -z $named ]]
    grep -qiE "[^a-z]($PRIVATE)[^a-z]" <<<' struct cmn_tally *t; '
}

# old_words FOLDER...: comments of C files in words that a reader of today stumbles over, as "file:line: comment". A parameter's
# name stands in backticks.
old_words() {
    find "$@" -name '*.[ch]' -exec awk '{
        for (line = $0; line != ""; line = end ? substr(line, end + 2) : "") {
            if (!inside) {
                begin = index(line, "/*")
                if (!begin) break
                line = substr(line, begin + 2)
                inside = 1
            }
            end = index(line, "*/")
            print FILENAME ":" FNR ": " (end ? substr(line, 1, end - 1) : line)
            if (end) inside = 0
        } }' {} + | grep -iE "\<but for\>|\<(leaves?|left|leaving)\>.* away\>|\<goes on\>|[^\`]\<alone\>|people's own|: +Of (this|the) [a-z]+\." || true
}

@test "comments of C files are in today's English" {
    said=$(old_words cmn run bench)
    echo "$said"
    [[ -z $said ]]
    folder=$BATS_TEST_TMPDIR/words
    mkdir "$folder"
    cat >"$folder/a.c" <<'END'
/* All but for one. */ int a; /* It leaves the key away. */
/* The training
 * goes on. With `alone` it hides.
 * This rank alone. */
int alone; /* Of this step. */
END
    [[ $(old_words "$folder" | wc -l) -eq 5 ]]
}

@test "cmn.h is the only header of the module that Darknet's patched source includes" {
    # As they stand behind a quotation mark or a folder.
    (cd cmn && find . -mindepth 2 -name '*.h' -printf '"%P"\n/%P"\n') >"$BATS_TEST_TMPDIR/headers"
    [[ $(wc -l <"$BATS_TEST_TMPDIR/headers") -gt 100 && $(find cmn -maxdepth 1 -name '*.h') == cmn/cmn.h ]]
    run -1 grep -rnFf "$BATS_TEST_TMPDIR/headers" patches
}

@test "the job is ended in hooks/job.c, the process in base/fatal.c, and a helper process in base/launcher.c" {
    run -0 grep -nE '\b(_?exit|abort|MPI_Abort|quick_exit)\(' -r cmn --include='*.c'
    echo "$output"
    while IFS= read -r line; do
        case $line in
            '' | cmn/hooks/job.c:* | cmn/base/launcher.c:* | cmn/base/fatal.c:* | cmn/tools/*) ;;
            *) echo "here: $line"; false ;;
        esac
    done <<<"$output"
}

@test "every communicator is in the registry and in darknet cmn list" {
    list=$("$DARKNET" cmn list)
    strategies=$(sed -n "s/^const struct cmn_communicator cmn_communicator_\([a-z_]*\) = .*/\1/p" cmn/communicators/*.c)
    [[ $(wc -l <<<"$strategies") -gt 8 ]]
    for name in $strategies; do
        [[ -f cmn/communicators/$name.c ]]
        grep -q "cmn_communicator_$name" cmn/communicators/registry.c
        grep -qE "^ +$name " <<<"$list"
    done
}

@test "docs/internals/debug.md has a row for every variable of the table in cmn/base/debug.c" {
    # shellcheck disable=SC2016  # Markdown
    diff <(sed -n 's/^| `CMN_DEBUG_\([A-Z_]*\)` .*/\1/p' docs/internals/debug.md) <(sed -n 's/^    {"\([A-Z_]*\)", .*/\1/p' cmn/base/debug.c)
    [[ $(grep -c '^| `CMN_DEBUG_' docs/internals/debug.md) -gt 3 ]]
}

@test "docs/internals/architecture.md has a row for every folder and every room" {
    folders=$(own_files . | sed -nE 's|^(\./)?([a-z]+)/.*|\2|p' | sort -u | grep -vxE 'docs|build|bin|data|results')
    [[ $(wc -l <<<"$folders") -gt 8 ]]
    rooms=$(find cmn -mindepth 1 -type d -printf '%P\n')
    [[ $(wc -l <<<"$rooms") -gt 8 ]]
    # shellcheck disable=SC2016  # Markdown
    grep '^|.*|' docs/internals/architecture.md | grep -oE '`[a-z]+/`' | tr -d '`/' | sort -u >"$BATS_TEST_TMPDIR/rows"
    missing=$(sort -u <<<"$folders"$'\n'"$rooms" | comm -23 - "$BATS_TEST_TMPDIR/rows")
    echo "no row: $missing"
    [[ -z $missing ]]
}

# named FILE...: the files of this repository that those name and that are not there.
named() {
    local path
    sed -E 's|https?://[^ )]*||g' "$@" |
        grep -ohE '(^|[^A-Za-z0-9_./-])(cmn|tests|docs|run|bench|fuzz|examples|setup|patches|cfg)/[A-Za-z0-9_/*-]*\.(md|bats|bash|sh|[ch]|cfg|data|mk|py)\b' |
        sed 's/^[^a-z]//' | sort -u | while read -r path; do compgen -G "$path" >/dev/null || echo "$path is not there"; done
}

@test "files that documents, comments and the build name are there" {
    mapfile -t files < <(own_files '*.md' cmn run '*Makefile' '*.mk' | grep -vE '^(\./)?(build|data|results)/')
    missing=$(named "${files[@]}")
    echo "$missing"
    [[ -z $missing && ${#files[@]} -gt 100 ]]
    echo 'see docs/no-such-page.md' >"$BATS_TEST_TMPDIR/page"
    [[ $(named "$BATS_TEST_TMPDIR/page") == 'docs/no-such-page.md is not there' ]]
}

@test "functions have at most 60 lines" {
    bad=$(find cmn run -name '*.c' -exec awk '
        FNR == 1 { inside = 0 }
        /^\{/ { start = FNR; inside = 1 }
        /^\}/ && inside { if (FNR - start > 60) print FILENAME ":" start ": " FNR - start " lines"; inside = 0 }
    ' {} +)
    echo "$bad"
    [[ -z $bad ]]
}

@test "no machine's paths and no registries' host names in the repository" {
    own_files . | grep -vE '^(\./)?(build|bin|data|results|\.git)/' >"$BATS_TEST_TMPDIR/files"
    # Each grep of xargs' has to end with 1: nothing found, and every file read.
    xargs -d '\n' -a "$BATS_TEST_TMPDIR/files" sh -c 'grep -nIE "$@"; [ $? -eq 1 ]' - \
        "\b(deb|registry)\.[a-z]+\.(org|com)\b|(^|[^a-zA-Z0-9._/-])$REPO/"
}

@test "shell scripts pass shellcheck" {
    command -v shellcheck >/dev/null || skip 'shellcheck is not installed'
    { own_files '*.bats' '*.bash' && scripts '(ba)?sh'; } | sort -u >"$BATS_TEST_TMPDIR/files"
    [[ $(wc -l <"$BATS_TEST_TMPDIR/files") -gt 100 ]]
    xargs -d '\n' -a "$BATS_TEST_TMPDIR/files" shellcheck -x
}

@test "bash scripts stop at the first error" {
    scripts bash >"$BATS_TEST_TMPDIR/files"
    [[ $(wc -l <"$BATS_TEST_TMPDIR/files") -gt 20 ]]
    xargs -d '\n' -a "$BATS_TEST_TMPDIR/files" grep -l '^set -euo pipefail' | diff "$BATS_TEST_TMPDIR/files" -
}

@test "tests assert what they seem to: no failure that bash, bats or a missing file hides" {
    tests/assertions.sh
    # What it says ~~ of a test's first line ~~ what stands below that.
    cd "$BATS_TEST_TMPDIR"
    files=() said=()
    while IFS= read -r row; do
        file=$PWD/lies-${#files[@]}.bats body=${row#* ~~ }
        printf '%s\n' "@test \"an apostrophe's test\" { # isn't, and doesn't hide the next line" "${body// ~~ /$'\n'}" '}' >"$file"
        files+=("$file") said+=("$file:2: ${row%% ~~ *}")
    done <<'END'
run ! takes any failure ~~ run ! cmp a b
run ! takes any failure ~~ run ! grep x file
run waits in a subshell ~~ run wait $job ~~ [[ $status -eq 0 ]]
set -e ignores a command behind ! ~~ ! grep -q x file ~~ cmp a b
set -e ignores what fails left of && ~~ ((n)) && ! grep -q x file ~~ cmp a b
any failure of the command ~~ cmp -s a b && false
set -e ignores what fails left of && ~~ grep -q a file && grep -q b file ~~ true
set -e ignores what fails left of && ~~ [[ -f a ]] && [[ $(<a) == b ]] ~~ true
no output counts as 0 ~~ [[ $(grep -c x file) -eq 0 ]]
no output counts as 0 ~~ [[ $(wc -l <file) -le 3 ]]
a command that fails has no output ~~ [[ -z $(find out -name x) ]]
the status of the command is lost ~~ local x=$(darknet cmn list)
ends before it has read all ~~ darknet cmn list | grep -q shm
ends before it has read all ~~ darknet cmn list | head -n 1
a command that fails makes no turn ~~ for x in $(darknet cmn list); do ~~ grep "$x" file ~~ done
its assertions but the last ~~ f || { cat log; false; } ~~ } ~~ f() { ~~ [[ -f a ]] ~~ cmp a b
its assertions but the last ~~ run -1 f ~~ } ~~ f() { ~~ grep -q x file ~~ cmp a b
its assertions but the last ~~ if f; then true; fi ~~ } ~~ f() { ~~ [[ -f a ]] ~~ cmp a b
run, and nobody looks ~~ run darknet cmn list
run, and nobody looks ~~ run darknet cmn list ~~ run -0 darknet cmn doctor
END
    run -1 "$REPO/tests/assertions.sh" "${files[@]}"
    echo "$output"
    [[ ${#lines[@]} -eq ${#files[@]} ]]
    for i in "${!said[@]}"; do [[ ${lines[i]} == "${said[i]}"* ]]; done
    # What bash, and helpers.bash, see to by themselves.
    # bats reads a line that begins with @test as one of this file.
    sed 's/^test/@&/' >"$BATS_TEST_TMPDIR/seen.bats" <<END
load "$REPO/tests/cli/helpers"
test "brackets" { [[ a == b ]]; true; }
test "arithmetic" { ((0)); true; }
test "left of a pipe" { false | cat; true; }
test "inside of a substitution" { x=\$(false; echo x); true; }
END
    run -1 timeout 500 bats --tap "$BATS_TEST_TMPDIR/seen.bats" 3>&-
    echo "$output"
    [[ $(grep -c '^not ok' <<<"$output") -eq 4 ]]
}

@test "a series lists its patches once, in groups; each has a name of its own, and a header that says what, who and when" {
    for series in patches/*/series; do
        folder=${series%/series}
        sed '/^#/d; /^$/d' "$series" >"$BATS_TEST_TMPDIR/listed"
        (cd "$folder" && find . -name '*.patch' -printf '%P\n') | sort | diff - <(sort "$BATS_TEST_TMPDIR/listed")
        twice=$(sed 's/.*\///' "$BATS_TEST_TMPDIR/listed" | sort | uniq -d)
        [[ -z $twice ]]
        # A group is one block under its heading; the hooks are the last.
        diff <(sed -n 's/^# \([a-z-]*\): .*/\1/p' "$series") <(sed 's/\/.*//' "$BATS_TEST_TMPDIR/listed" | uniq)
        [[ $(tail -n 1 "$series") == hooks/* ]]
        run -1 grep -vxE '[a-z-]+/[a-z0-9-]+\.patch' "$BATS_TEST_TMPDIR/listed"
        # All fields stand before the first file.
        # shellcheck disable=SC2016  # of awk
        (cd "$folder" && xargs -a "$BATS_TEST_TMPDIR/listed" awk 'FNR == 1 { n = 0 }
            /^(Description|Author|Forwarded|Last-Update): ./ && !seen[FILENAME, $1]++ { n++ }
            /^--- / { if (n == 4) print FILENAME; nextfile }') | diff "$BATS_TEST_TMPDIR/listed" -
        # What needs cmn.h stands in the hooks alone.
        run -1 grep -rlE '^\+.*\bcmn_[a-z_]+\(' "$folder" --include='*.patch' --exclude-dir=hooks
    done
}

# Each skip that is allowed is one that a test can make.
@test "tests/skips.txt names places, files and reasons that are there" {
    while read -r where file reason; do
        [[ -n $where && $where != \#* ]] || continue
        grep -qE "^        $where\\)" tests/tap.bash || { echo "tests/tap.bash knows no place $where"; false; }
        compgen -G "tests/$file*" >/dev/null || [[ $file == patches/* ]] || { echo "no file $file"; false; }
        # As not_offered of tests/cli/tree.bash puts it together, and as users are told.
        [[ $where != alexeyab ]] || reason=${reason#"AlexeyAB's tree: "}
        [[ $where != alexeyab || $(tr -d '`' <docs/use/alexeyab.md) == *"$reason"* ]] || { echo "docs/use/alexeyab.md: no $reason"; false; }
        reason=${reason#\* } reason=${reason#\*} reason=${reason%%\**}
        [[ $reason == - || $reason == 'GPU 0 '* ]] ||
            grep -qrF -- "$reason" tests/cli tests/hosts tests/gpu tests/run.sh setup/cuda.sh tests/soak.sh ||
            { echo "nobody says: $reason"; false; }
    done <tests/skips.txt
}
