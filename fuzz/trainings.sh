#!/usr/bin/env bash
# Runs inputs of the target `training` (fuzz/training.c) through the program itself, with -cmn on one rank: whatever stands in
# them, it ends with 0, or with 1 and a line, and no loss of its log is nan unless cmn_nonfinite=ignore asks for that.
#
#   fuzz/trainings.sh DARKNET FILE...     FILE: below build/fuzz/corpus/training, fuzz/seeds/training, fuzz/regression/training
#
# A training that has no end is asked to stop after SECONDS_EACH (20); LOUD=1 shows why one was refused. One line for each finding, and one with the counts.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
darknet=$(realpath "${1:?the program}")
shift
: "${SECONDS_EACH:=20}"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OPENBLAS_NUM_THREADS=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# split FILE: writes its files into the current folder, and its first line, the command, into `words`.
split() {
    tr -d '\000' <"$1" | awk 'NR == 1 { print >"words"; next }
        /^=== / { name = $2; known = name ~ /^(net\.cfg|train\.data|train\.list|labels\.txt|image\.txt|text)$/; next }
        known { print >name }'
    touch words
    tail -c +2 "$root/fuzz/seeds/image/rgb-png" >image.png # behind the number of channels
}

# judge STATUS: what is wrong with that end, or nothing.
judge() {
    case $1 in
        0 | 138 | 143)
            if ! grep -qE 'cmn_nonfinite[= ]ignore' words net.cfg 2>/dev/null && grep -aqiE '"main/loss": ?"?-?(nan|inf|null)' ./*.json 2>/dev/null; then
                echo 'a loss is not finite'
            fi ;;
        1) grep -aq . err || echo 'status 1 without a line' ;;
        137) echo 'it hangs' ;;
        *) echo "status $1" ;;
    esac
}

ended=0 refused=0 left=0 wrong=0
mapfile -t files < <(realpath "$@")
for file in "${files[@]}"; do
    rm -rf "$work/run"
    mkdir "$work/run"
    cd "$work/run"
    split "$file"
    read -ra words < <(head -n 1 words) || true
    # What is no training, or would write elsewhere, is none of this.
    if [[ ${words[1]:-} != train ]] || grep -qE '(^|[= ])[./]*/' words net.cfg train.data 2>/dev/null; then
        left=$((left + 1))
        continue
    fi
    status=0
    timeout --preserve-status --signal=USR1 --kill-after=60 "$SECONDS_EACH" "$darknet" "${words[@]}" -cmn >out 2>err </dev/null || status=$?
    finding=$(judge "$status")
    if [[ $finding ]]; then
        wrong=$((wrong + 1))
        echo "$file: $finding: $(tail -n 1 err)"
    elif ((status == 1)); then
        refused=$((refused + 1))
        [[ ! ${LOUD:-} ]] || tail -n 1 err
    else
        ended=$((ended + 1))
    fi
done
echo "trainings: $ended to their end, $refused refused, $left left out, $wrong findings"
((wrong == 0))
