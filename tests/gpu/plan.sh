#!/usr/bin/env bash
# plan.sh [OUT [STEP...]]: tries on a GPU what tests/gpu/steps lists, or these steps alone, in ten minutes. What a step prints goes
# into OUT/log at once, so a machine that is taken away leaves what was seen until then; a step that fails or hangs stops no other.
# At the end of the log is a line for each step.
#
# This is `run` in the pack that `make gpu-pack` makes, which needs nothing of the machine but a driver and CUDA's libraries;
# and it runs in the repository, over the build that DARKNET names. Docs: tests/gpu/README.md.
# Environment: GPU_PLAN_SECONDS (570: for everything), GPU_PLAN (a file with other steps), CUDA_LIBRARIES (folders to be looked
# through first), and that of tests/gpu/run.sh.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# ---- where things are ----

# Folders with CUDA's libraries: those in the linker's cache, of the toolkit, of the driver, and of Python's packages.
cuda_folders() {
    local python
    tr ':' '\n' <<<"${CUDA_LIBRARIES:-}"
    ldconfig -p 2>/dev/null | sed -nE 's,^\s*lib(cuda|cudart|cublas|curand|cudnn|nccl)\.so\.[0-9]+ .* => (.*)/.*,\2,p'
    ls -d /usr/local/cuda*/lib64 /usr/local/cuda*/targets/x86_64-linux/lib /usr/local/nvidia/lib64 /usr/local/nvidia/lib \
        /usr/lib/x86_64-linux-gnu/nvidia/current 2>/dev/null || true
    for python in python3 /opt/*/.venv/bin/python3; do
        "$python" -c 'import glob, nvidia; print(*(f for p in nvidia.__path__ for f in glob.glob(p + "/*/lib")), sep="\n")' \
            2>/dev/null || true
    done
}

# In the pack: unpacks it, once, and uses what is in it.
find_files() {
    if [[ ! -f $here/files.tar.gz ]]; then
        root=$(cd "$here/../.." && pwd)
        return
    fi
    root=${TMPDIR:-/tmp}/gpu-pack-$(cksum <"$here/files.tar.gz" | tr -d ' ')
    if [[ ! -d $root ]]; then
        rm -rf "$root.new"
        mkdir -p "$root.new"
        tar -xzf "$here/files.tar.gz" -C "$root.new"
        mv "$root.new" "$root"
    fi
    export DARKNET=$root/bin/darknet DARKNET_ALEXEYAB=$root/bin/darknet-alexeyab COMPARE_WEIGHTS=$root/bin/compare_weights
    export GPU_TEST_PROGRAMS=$root/bin/tests
    # Of 3000 images.
    export GPU_TEST_ACCURACY=${GPU_TEST_ACCURACY:-0.95} GPU_TEST_EPOCHS=${GPU_TEST_EPOCHS:-20}
    # Open MPI, somewhere else than where it was built for. There may be no ssh, and none is needed.
    export OPAL_PREFIX=$root/mpi PMIX_MCA_mca_base_component_path=$root/mpi/pmix PATH=$root/mpi/bin:$PATH
    export OMPI_MCA_plm=isolated OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader OMPI_MCA_btl_vader_single_copy_mechanism=none
    LD_LIBRARY_PATH=$root/lib:$(cuda_folders | awk '/./ && !seen[$0]++' | paste -s -d :)
    export LD_LIBRARY_PATH
}

# ---- steps that are not of tests/gpu/run.sh ----

libraries() {
    local found
    ldd "$DARKNET"
    if ldd "$DARKNET" | grep 'not found'; then
        echo "libraries are missing; looked through: ${LD_LIBRARY_PATH:-}"
        return 1
    fi
    # The driver is opened by name. Files that are not there make ls fail.
    found=$({ ldconfig -p; tr ':' '\n' <<<"${LD_LIBRARY_PATH:-}" | sed 's|$|/libcuda.so.1|' | xargs ls; } 2>/dev/null || true)
    if ! grep -m 1 'libcuda\.so\.1' <<<"$found"; then
        echo 'libcuda.so.1, which comes with the driver, was not found'
        return 1
    fi
}

check() {
    local said status=0
    said=$("${mpiexec[@]}" -n 1 "$DARKNET" cmn check 2>&1) || status=$?
    echo "$said"
    ((status == 0)) || return "$status"
    [[ $said != *' 0 GPUs for this rank'* ]] || { echo 'not ok - cmn check sees no GPU'; return 1; }
}

# ---- the plan ----

# The one line that says how a step ended, from what it printed.
why() {
    local line
    line=$(grep -m 1 -E '^not ok' <<<"$1" || grep -m 1 -E '^cmn\[|not found|cannot|No such|[Ff]ailed|[Ee]rror' <<<"$1" || tail -n 1 <<<"$1")
    sed -E "s|$root/||g; s/^not ok [0-9]* - (training on a GPU: )?//; s/^[[:space:]]+//; s/^(.{160}).+/\1…/" <<<"${line:-nothing was printed}"
}

# Ends what a step has left: a rank outlives a shell that was killed.
end_the_rest() {
    local folder
    for folder in /proc/[0-9]*; do
        ! grep -qzx "GPU_PLAN_STEP=$1" "$folder/environ" 2>/dev/null || kill -KILL "${folder#/proc/}" 2>/dev/null || true
    done
}

# note NAME PLANNED TOOK RESULT
rows=() oks=0
note() {
    rows+=("$(printf '%-17s %7s %6s  %s' "$@")")
    [[ $4 != ok* ]] || oks=$((oks + 1))
    printf '==== %s: %s\n' "$1" "$4" | tee -a "$out/log"
}

# run_step NAME SECONDS [COMMAND...]: a function of tests/gpu/run.sh where there is no command.
run_step() {
    local name=$1 planned=$2 left=$((GPU_PLAN_SECONDS - SECONDS)) begin=$SECONDS status=0 from limit printed passed result
    shift 2
    if ((left < 5)); then
        note "$name" "$planned" - "not run: the $GPU_PLAN_SECONDS s are over"
        return
    fi
    limit=$((planned <= left ? planned : left))
    (($#)) || set -- env GPU_TEST_ONLY="$name" bash tests/gpu/run.sh
    printf '\n==== %s: %s (%d s at most)\n' "$name" "$*" "$limit" >>"$out/log"
    from=$(stat -c %s "$out/log")
    GPU_PLAN_STEP=$$-$name timeout --kill-after=5 "$limit" bash "${BASH_SOURCE[0]}" --step "$root" "$@" </dev/null >>"$out/log" 2>&1 || status=$?
    end_the_rest "$$-$name"
    printed=$(tail -c +$((from + 1)) "$out/log" | tr -d '\0')
    # What the training or test said that was ended.
    [[ $status != 1[23][47] || ! -f $GPU_TEST_TMP/log ]] || tail -n 40 "$GPU_TEST_TMP/log" | sed 's/^/# /' >>"$out/log"
    passed=$(awk '/^ok [0-9].*# SKIP/ { ++skipped; next } /^ok [0-9]/ { ++ok } /^not ok/ { ++bad }
        END { if (ok + skipped + bad > 1) printf ", %d passed%s%s", ok, skipped ? ", " skipped " skipped" : "",
            bad ? ", " bad " not, first" : "" }' <<<"$printed")
    case $status in
        0) result=ok$passed ;;
        124 | 137) result="NO END$passed; last: $(tail -n 1 <<<"$printed")" ;;
        *) result="FAILED$passed: $(why "$printed")" ;;
    esac
    note "$name" "$planned" $((SECONDS - begin)) "$result"
}

main() {
    local name seconds words
    date '+==== %F %T' >>"$out/log"
    while read -r -u 3 name seconds words; do
        [[ $# -eq 0 || " $* " == *" $name "* ]] || continue
        read -ra words <<<"$words"
        run_step "$name" "$seconds" "${words[@]}"
    done 3< <(sed -E 's/ *#.*//; /^$/d' "${GPU_PLAN:-$root/tests/gpu/steps}")
    cp "$GPU_TEST_TMP/trace.json" "$out/" 2>/dev/null || true
    {
        printf '\n%-17s %7s %6s  %s\n' step planned took result
        printf '%s\n' "${rows[@]}"
        printf '%d s; %d steps, %d of them ok\n' "$SECONDS" "${#rows[@]}" "$oks"
    } | tee -a "$out/log"
    ((oks == ${#rows[@]}))
}

: "${GPU_PLAN_SECONDS:=570}" "${MPIEXEC:=mpiexec --oversubscribe --bind-to none$( ((UID)) || echo ' --allow-run-as-root')}"
read -ra mpiexec <<<"$MPIEXEC"
if [[ ${1:-} == --step ]]; then
    cd "$2"
    "${@:3}"
    exit
fi
out=${1:-gpu-results}
mkdir -p "$out"
out=$(cd "$out" && pwd)
export GPU_TEST_TMP=${GPU_TEST_TMP:-${TMPDIR:-/tmp}/gpu-test-$UID} GPU_TEST_REQUIRED=1 GPU_TEST_LIMIT=${GPU_TEST_LIMIT:-75}
export GPU_PLAN_SECONDS MPIEXEC NCCL_DEBUG=${NCCL_DEBUG:-WARN}
find_files
main "${@:2}"
