#!/usr/bin/env bash
# Assertions that cannot fail, in files for bats. Prints FILE:LINE: what is wrong; 1 where there is one.
#
#   tests/assertions.sh [FILE...]    by default all of tests/
#
# bats ends a test at a command that fails, by bash's `set -e`, which has exceptions. It reads lines, not the shell's grammar:
# what it lets pass may still be wrong. tests/cli/structure.bats has a line for each pattern.
set -euo pipefail
cd "$(dirname "$0")/.."
if (($# == 0)); then
    set -- tests/*/*.bats tests/*/*.bash
fi

# shellcheck disable=SC2016  # awk's own $
exec awk '
function say(what) {
    printf "%s:%d: %s\n", FILENAME, FNR, what
    bad = 1
}

# What stands in quotes, in [[ ]] and in (( )) matters to some patterns only. Bats of awk and of C in heredocs are left out.
function bare(s) {
    gsub(/\\./, "", s)
    gsub(/\047[^\047]*\047/, "Q", s)
    gsub(/"[^"]*"/, "Q", s)
    return s
}

# Whether a string in single quotes goes on in the next line. An apostrophe in double quotes or in a comment begins none.
function ends_in_quote(s, single,    i, c, double) {
    for (i = 1; i <= length(s); i++) {
        c = substr(s, i, 1)
        if (c == "\\" && !single) i++
        else if (c == "\047" && !double) single = !single
        else if (c == "\"" && !single) double = !double
        else if (c == "#" && !single && !double && substr(" " s, i, 1) ~ /[ \t]/) break
    }
    return single
}

# A line that only the last one of a function may be: its status counts there alone.
function not_last(what) {
    pending = what
    pending_line = FNR
}

function end_of_test() {
    if (loose) {
        printf "%s:%d: run, and nobody looks at its status: run -0, or run -1\n", FILENAME, loose
        bad = 1
    }
    loose = 0
}

# Where its caller asks whether it failed, a function runs to its end, and its last command alone counts.
function asserts(s) {
    return s ~ /^ *(\[\[|\(\(|grep|cmp|diff|test|jq -e|assert_[a-z]+|run -[0-9]+) / && s !~ /(\|\||&&|\\$)/
}
pass == 1 && /^[a-z_0-9]+\(\) \{$/ { name = $1; sub(/\(\)/, "", name); middle = 0; next }
pass == 1 && name != "" && /^}/ { name = ""; next }
pass == 1 && name != "" {
    if (middle) many[FILENAME ~ /bash$/ ? name : FILENAME name] = 1
    middle = asserts($0)
}
pass == 1 { next }
function asked(s) {
    sub(/^ *(if|elif|while|until|!) +(! +)?/, "? ", s)
    sub(/^ *([A-Z_]+=[^ ]+ )*run( -[0-9]+)? +/, "? ", s)
    if (s !~ /^\? / && s ~ /(\|\||&&)/) sub(/^ */, "? ", s)
    if (s !~ /^\? /) return 0
    sub(/^\? /, "", s)
    if (s ~ /^[a-z_0-9]+\+?=/) return 0
    sub(/[^a-z_0-9].*/, "", s)
    return s != "" && ((s in many) || ((FILENAME s) in many))
}

FNR == 1 { heredoc = ""; pending = ""; loose = 0; quoted = 0 }
heredoc != "" { if ($0 ~ "^\t*" heredoc "$") heredoc = ""; next }
/^[ \t]*(#|$)/ { next }

{
    if (pending != "" && $0 !~ /^ *(\}|\) *[<>|&]|;;)/) {
        printf "%s:%d: %s\n", FILENAME, pending_line, pending
        bad = 1
    }
    pending = ""
    # The inside of a string over several lines is no command of this shell.
    inside = quoted
    quoted = ends_in_quote($0, quoted)
    if (inside) next
    code = bare($0)
    control = code ~ /^ *(if|elif|while|until|for|case) /
}

match($0, /<<-?[ ]*\047?"?[A-Z_]+/) && !/<<</ {
    heredoc = substr($0, RSTART, RLENGTH)
    gsub(/[^A-Z_]/, "", heredoc)
}

asked(code) { say("its assertions but the last are ignored where somebody asks for its status: || return 1 behind each") }
code ~ /(^|[ ;&|(])run ! / { say("run ! takes any failure, a missing file and a crash as well: run -1, or the status that is meant") }
code ~ /(^|[ ;&|(])run( -[0-9]+)? wait( |$)/ { say("run waits in a subshell, which has no such child: wait JOB || status=$?") }
code ~ /^ *! / && code !~ /(\|\||&&)/ { not_last("set -e ignores a command behind !: run -1, or [[ ! ]]") }
code ~ /&& *(false|return 1|exit 1)( |;|$)/ && code !~ /\|\| *\{/ { say("any failure of the command lets this pass: run -1, or [[ ]]") }
!control && code ~ /^ *(\[\[|\(\(|grep|cmp|diff|test|jq|assert_|fails_|run -)[^{}]* && / && code !~ /\|\|/ {
    rest = code
    gsub(/\$\{[^}]*\}/, "V", rest)
    gsub(/\[\[[^\]]*\]\]/, "T", rest)
    gsub(/\(\([^)]*\)\)/, "T", rest)
    if (rest ~ / && / && rest !~ /&& *(continue|break|return|exit|skip|[a-z_]+\+?=)/) not_last("set -e ignores what fails left of &&: two lines")
}
$0 ~ /\[\[.*\$\([^(].*\)"? -(eq 0|l[te] )/ && code !~ /(\|\||&&) *(break|continue|return 0|skip|user=|MPIEXEC)/ && !control && $0 !~ /id -u/ {
    say("no output counts as 0 here: run -0, or compare with ==")
}
code ~ /\[\[ (.* )?-z (Q|\$\()/ && /-z "?\$\(/ && !control && code !~ /\|\| *(break|continue|return 0)/ {
    say("a command that fails has no output either: run -0, then [[ -z $output ]]")
}
/^ *(local|export|declare|readonly) [^;]*="?\$\([^(]/ {
    say("the status of the command is lost: local first, the value in a line of its own")
}
code ~ /[^|]\| *(grep -[a-zA-Z]*[qm]|head )/ && !control && code !~ /<\([^)]*\| *head [^)]*\)/ {
    say("ends before it has read all, so pipefail sees SIGPIPE at times: grep, or sed -n")
}
/(^|[ ;])for [a-z_]+ in [^;]*\$\([^(<]/ { say("a command that fails makes no turn: its output into a variable first") }

# A plain run: somebody has to look at status before the next run, or at the end of the function.
/^ *([A-Z_]+=[^ ]+ )*run [^-!]/ { end_of_test(); loose = FNR; next }
/status/ { loose = 0 }
/^ *([A-Z_]+=[^ ]+ )*run -/ { end_of_test() }
/^}/ { end_of_test() }

END { exit bad }
' pass=1 "$@" pass=2 "$@"
