#!/usr/bin/env bats
# shellcheck disable=SC2030,SC2031  # output, status: tests are functions that shellcheck takes for subshells
# The documents: links, and every command that they name. What becomes of a block is said behind its fence: tests/docs.sh.

load helpers

setup() {
    enter_folder
    cd "$REPO" || return 1
}

@test "each relative link leads to a file, and each anchor to a heading" {
    run tests/docs.sh links
    echo "$output"
    [[ $status -eq 0 && ${output##*$'\n'} =~ ^([0-9]+)\ links$ && ${BASH_REMATCH[1]} -gt 80 ]]
}

@test "each fenced block says what becomes of it" {
    run tests/docs.sh marks
    echo "$output"
    [[ $status -eq 0 && ${output##*$'\n'} =~ ^([0-9]+)\ blocks$ && ${BASH_REMATCH[1]} -gt 50 ]]
}

# bars SVG: "network link setting per-cent" of each bar; networks, settings and bars stand in the file in their order.
bars() {
    sed -nE 's|.*<text class="b" [^>]*>(mnist_[a-z0-9]+)<.*|net \1|p; s|.*<text class="e" [^>]*>([^<]*)<.*|setting \1|p; s|.*<text class="s" [^>]*>([0-9]+)<.*|bar \1|p' "$1" |
        awk '$1 == "net" { net = $2; n = 0 } $1 == "setting" { sub(/^setting /, ""); setting[++settings] = $0 }
            $1 == "bar" { print net ", " (n % 2 ? "100mbit" : "1gbit") ": " setting[int(n / 2) + 1] " " $2; n++ }' | sort
}

@test "the bars of docs/images/slow-links.svg are figures that were measured" {
    bars docs/images/slow-links.svg >"$BATS_TEST_TMPDIR/bars"
    jq -r '.rows[] | select(has("steps/s")) | "\(.net), \(.link): \(.setting) \(."of baseline" | rtrimstr(" %"))"' bench/results/slow-link.json | sort >"$BATS_TEST_TMPDIR/page"
    wrong=$(comm -23 "$BATS_TEST_TMPDIR/bars" "$BATS_TEST_TMPDIR/page")
    echo "$wrong"
    [[ -z $wrong && $(wc -l <"$BATS_TEST_TMPDIR/bars") -eq 20 ]]
}

# Programs of other builds have other names than those in the documents.
one_build() {
    [[ $BUILD -ef build/cpu && -z $SAN ]] || skip 'the documents speak of the ordinary build'
    [[ -f data/mnist/train.list ]] || skip 'data/mnist is missing: make mnist'
}

@test "the commands of the documents run, and print what is shown" {
    one_build
    run tests/docs.sh run
    echo "$output"
    [[ $status -eq 0 ]]
    [[ $(grep -cE ': [0-9]+ s$' <<<"$output") -gt 28 ]]
}

@test "a dead link, an unmarked block, a failing command, an unknown key and other output are seen" {
    export DOCS=$BATS_TEST_TMPDIR
    bad=$DOCS/bad.md
    # shellcheck disable=SC2016  # Markdown
    printf '%s\n' '# One heading, `two` words' '' '[a](bad.md#one-heading-two-words) [b](bad.md#no) [c](none.md)' >"$bad"
    run tests/docs.sh links
    echo "$output"
    [[ $status -eq 1 && ${lines[0]} == 'bad.md: bad.md#no: bad.md has no such heading' && ${lines[1]} == 'bad.md: none.md: none.md is not there' ]]
    [[ ${lines[2]} == '3 links' ]]
    # shellcheck disable=SC2016  # Markdown
    printf '```%s\n%s\n```\n' '' 'ls' 'sh needs=luck' 'ls' 'sh by=tests/none.bats' 'ls' >"$bad"
    run tests/docs.sh marks
    echo "$output"
    [[ $status -eq 1 && $(grep -c 'not a mark' <<<"$output") -eq 3 ]]
    one_build
    # shellcheck disable=SC2016  # Markdown
    printf '```%s\n%s\n```\n' 'sh run' 'false' 'sh run' 'darknet cmn lsit || true; darknet cmn list -none || true' 'sh run fails' 'true' \
        'console run' $'$ echo 1 a\n2 b' 'console run' $'$ echo 1 a\n2 a' 'sh run' 'make no-such-target' >"$bad"
    run tests/docs.sh run
    echo "$output"
    [[ $status -eq 1 && $(grep -c ': BAD$' <<<"$output") -eq 5 && $output == *'bad.md:14: '*' s'* && $output == *'not printed: N b'* ]]
}
