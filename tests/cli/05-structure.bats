#!/usr/bin/env bats
# How the source is laid out: docs/architecture.md in the form of checks.

load helpers

setup() {
    enter_folder
    cd "$REPO" || return 1
}

# Includes point one way: each file of cmn/ may name headers of its own level and of those below.
level_of() {
    case $1 in
        average_precision.* | cfg_changes.* | clocks.* | commands.* | device.* | kernels.* | options.* | log.* | memory.* | random.* | sums.* | terminal.* | timeline.* | topology.* | vectors.* | watch.* | watch_[!sn]*.* | watch_stack.*) echo 1 ;;
        buckets.* | pieces.* | transports/* | codecs/*) echo 2 ;;
        choose.* | communicator.h | communicators/* | flow.* | groups.*) echo 3 ;;
        alike.* | aside.* | files.* | world.* | images.* | output.* | scatter.* | report/*) echo 3 ;;
        norm.* | checkpoint_*.* | watch_shared.* | watch_nodes.*) echo 3 ;;
        lars.* | outline.* | watchdog.*) echo 4 ;;
        gradients.* | gradients_*.* | schedule.* | schedule_*.* | nonfinite.* | local_steps.* | tuner.* | detector.* | evaluator.* | loader.* | share.*) echo 4 ;;
        session.*) echo 5 ;;
        training.* | training_norm.* | training_nonfinite.* | samples.* | epoch.* | rate.* | validation.* | training_averages.c | training_checkpoint.* | training_resume.c | training_parts.c | training_identity.c | training_untrained.c | stop.* | arguments.* | tools/*) echo 6 ;;
        cmn.* | hooks*.* | job.* | programs.*) echo 7 ;;
        *) echo "no level is known for cmn/$1: give it one in 05-structure.bats" >&2; return 1 ;;
    esac
}

own_files() {
    git ls-files -- "$@" 2>/dev/null | grep . || find "$@" -type f
}

@test "includes point one way" {
    bad=0
    while IFS= read -r file; do
        from=$(level_of "${file#cmn/}")
        while IFS= read -r header; do
            for folder in cmn "$(dirname "$file")"; do
                [[ -f $folder/$header ]] || continue
                to=$(level_of "$(realpath --relative-to=cmn "$folder/$header")")
                if ((to > from)); then
                    echo "$file (level $from) includes $header (level $to)"
                    bad=1
                fi
            done
        done < <(sed -n 's/^#include "\(.*\)"/\1/p' "$file")
    done < <(find cmn -name '*.[ch]' | sort)
    ((bad == 0))
}

@test "communicators know no layers, transports no networks: who includes Darknet" {
    run grep -lE '#include "(darknet|network|parser|option_list|list|image|data|utils|layer)\.h"' -r cmn
    echo "$output"
    for file in $output; do
        case ${file#cmn/} in
            hooks*.c | detector.c | tools/plan.c | training.c | samples.c | gradients.c | gradients_ranks.c | gradients_gpu.c | evaluator.c | epoch.c | validation.c) ;;
            outline.c | rate.c | nonfinite.c | training_nonfinite.c | gradients_hidden.c | training_checkpoint.c | training_resume.c | training_identity.c) ;;
            *) echo "$file must not know Darknet"; false ;;
        esac
    done
}

@test "cmn.h is the only header of the module that Darknet's patched source includes" {
    for header in $(cd cmn && find . -name '*.h' -printf '%P\n'); do
        [[ $header == cmn.h ]] || run ! grep -nE "^\\+#include \"(.*/)?$header\"" patches/*.patch
    done
}

@test "the job is ended in cmn.c and nowhere else" {
    run grep -nE '\b(_?exit|abort|MPI_Abort|quick_exit)\(' -r cmn --include='*.c'
    echo "$output"
    while IFS= read -r line; do
        case $line in
            '' | cmn/cmn.c:* | cmn/tools/*) ;;
            *) echo "here: $line"; false ;;
        esac
    done <<<"$output"
}

@test "every communicator is in the registry and in darknet cmn list" {
    list=$("$DARKNET" cmn list)
    for file in cmn/communicators/*.c; do
        name=$(basename "$file" .c)
        [[ $name == registry ]] && continue
        grep -q "cmn_communicator_$name" cmn/communicators/registry.c
        grep -qE "^ +$name " <<<"$list"
    done
}

@test "docs/architecture.md has a row for every room, and names every file of cmn/" {
    rooms=$(own_files . | sed -nE 's|^(\./)?([a-z]+)/.*|\2|p' | sort -u | grep -vxE 'docs|build|bin|data|results')
    [[ $(wc -l <<<"$rooms") -gt 8 ]]
    for room in $rooms; do
        grep -q "^|.*\`$room/\`.*|" docs/architecture.md || { echo "no row for $room/"; false; }
    done
    files=$(find cmn -name '*.[ch]' -printf '%P\n' | sed -E 's|/.*|/|; s|\.[ch]$||' | sort -u)
    for file in $files; do
        grep -qE "\`$file(\.[ch*])?\`" docs/architecture.md || { echo "cmn/$file is not named"; false; }
    done
}

@test "files have at most 400 lines" {
    bad=$(own_files cmn run tests bench examples setup darknet fuzz | grep -E '\.(c|h|sh|bash|bats)$' | xargs -d '\n' wc -l |
        awk '$2 != "total" && $1 > 400')
    echo "$bad"
    [[ -z $bad ]]
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
    run ! xargs -d '\n' -a "$BATS_TEST_TMPDIR/files" grep -nIE "\b(deb|registry)\.[a-z]+\.(org|com)\b|(^|[^a-zA-Z0-9._/-])$REPO/"
}

@test "shell scripts pass shellcheck" {
    command -v shellcheck >/dev/null || skip 'shellcheck is not installed'
    own_files . | grep -vE '^(\./)?(build|bin|data|results|\.git)/' | while IFS= read -r file; do
        case $file in
            *.bats | *.bash) ;;
            *) head -n 1 "$file" | grep -qaE '^#!.*\b(ba)?sh\b' || continue ;;
        esac
        printf '%s\0' "$file"
    done | xargs -0 shellcheck -x
}

@test "bash scripts stop at the first error" {
    own_files . | grep -vE '^(\./)?(build|bin|data|results|\.git)/' >"$BATS_TEST_TMPDIR/files"
    bad=
    while IFS= read -r file; do
        head -n 1 "$file" | grep -qaE '^#!.*\bbash\b' || continue
        grep -q '^set -euo pipefail' "$file" || bad+=" $file"
    done <"$BATS_TEST_TMPDIR/files"
    echo "without set -euo pipefail:$bad"
    [[ -z $bad ]]
}

@test "patches are numbered, with a header that says what, who and when" {
    for patch in patches/*.patch; do
        [[ $(basename "$patch") =~ ^[0-9]{4}-[a-z0-9-]+\.patch$ ]]
        for field in Description Author Forwarded Last-Update; do
            grep -q "^$field: " "$patch" || { echo "$patch has no $field"; false; }
        done
    done
}
