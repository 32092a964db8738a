# shellcheck shell=bash disable=SC2034,SC2154  # what tests/run.sh knows
# How tests/run.sh adds up the TAP of a program.

passed=0 failed=0 failures=() skips=()

# note NAME LINE: a failure, for now and for the summary.
note() {
    failed=$((failed + 1)) failures+=("$1: $2")
}

# holds WHERE NAME: whether this is such a place, in the words of tests/skips.txt.
holds() {
    case $1 in
        root) [[ $(id -u) -eq 0 ]] ;;
        user) [[ $(id -u) -ne 0 ]] ;;
        sanitizer) [[ -n $SAN ]] ;;
        no-gpu) ! compgen -G '/dev/nvidia[0-9]*' >/dev/null ;;
        no-cuda) [[ ! -x ${CUDA_HOME:-/usr/local/cuda}/bin/nvcc ]] && ! command -v nvcc >/dev/null ;;
        open-mpi-5) "${mpiexec[0]}" --version | grep -q 'Open MPI) 5' ;;
        no-namespaces) ! unshare --net --mount --pid --time --fork true 2>/dev/null ;;
        no-ptrace) ! strace -o /dev/null true 2>/dev/null ;;
        one-core) (($(nproc --all) == 1)) ;;
        large-memory) awk '/^MemAvailable:/ { exit $2 < 40 * 1024 * 1024 }' /proc/meminfo ;;
        no-bf16) ! grep -qE 'avx512_bf16|amx_bf16' /proc/cpuinfo ;;
        no-avx512) ! grep -q avx512vl /proc/cpuinfo ;;
        no-alexeyab) [[ -z ${ALEXEYAB_TREE:-} ]] ;;
        alexeyab) [[ $2 == alexeyab/* || $TREE == alexeyab ]] ;;
        no-opencv) ! pkg-config --exists opencv4 ;;
        by-hand) [[ -z ${CMN_LIBS:-} ]] ;;
        *) return 1 ;;
    esac
}

# may_skip NAME REASON: tests/skips.txt allows it here.
may_skip() {
    local where file reason
    while read -r where file reason; do
        # shellcheck disable=SC2053  # patterns
        [[ -n $where && $where != \#* && ${1#alexeyab/} == $file && $2 == $reason ]] && holds "$where" "$1" && return 0
    done <tests/skips.txt
    return 1
}

# count NAME STATUS LIMIT FOLDER: adds up the TAP there, and each different finding of a sanitizer. A program that gave no plan, or not
# what its plan says, or ended badly without a failed test, counts as one more failure.
count() {
    local line plan='' tests=0 bad='' missing='' reason report
    while IFS= read -r line; do
        case $line in
            # A program may have several groups of tests, each with its plan.
            1..[0-9]*) line=${line#1..} plan=$((plan + 10#${line%%[!0-9]*})) && continue ;;
            'ok '*'# '[Ss][Kk][Ii][Pp]* | 'not ok '*' # SKIP '*)
                # The second is cmocka's way, which names the test and no reason.
                reason=$(sed -E 's/^not ok .*//; s/.*# [Ss][Kk][Ii][Pp] ?//; s/ in [0-9]+ms *$//' <<<"$line")
                if may_skip "$1" "${reason:--}"; then skips+=("$1: $line"); else note "$1" "$line (not allowed by tests/skips.txt)"; fi
                ;;
            'not ok '*) note "$1" "$line" && bad=1 ;;
            'ok '*) passed=$((passed + 1)) ;;
            *) continue ;;
        esac
        tests=$((tests + 1))
    done <"$4/tap"
    if [[ $tests != "$plan" || $2 -eq 124 || $2 -eq 137 || ($2 -ne 0 && -z $bad) ]]; then
        missing="not ok - $1: status $2$( (($2 != 124 && $2 != 137)) || echo ", no end within $3 s"), after $tests of ${plan:-unplanned} tests"
        echo "$missing"
        note "$1" "$missing"
    fi
    [[ -z $missing$bad ]] || tail -n 40 "$4/stderr" | sed 's/^/# /'
    for report in "$4"/found.*; do
        [[ -s $report ]] || continue
        line=$(grep -m 1 -E 'SUMMARY|runtime error' "$report" || head -n 1 "$report")
        [[ " ${failures[*]:-} " != *" $1: $line"* ]] || continue
        printf 'not ok - %s: the sanitizer has found something\n' "$1"
        sed 's/^/# /' "$report"
        note "$1" "$line"
    done
}
