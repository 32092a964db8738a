#!/usr/bin/env bash
# plan.sh [OUT [STEP...]]: all that is to be tried on a GPU, in ten minutes: what shows most comes first. Each step has seconds of
# its own. What it prints goes into OUT/log at once, so a machine that is taken away leaves what was seen until then; a step that
# fails or hangs stops no other. At the end of the log is a line for each step. With names of steps only these run.
#
# This is `run` in the pack that `make gpu-pack` makes, which needs nothing of the machine but a driver and CUDA's libraries;
# and it runs in the repository, over the build that DARKNET names. Docs: tests/gpu/README.md.
# Environment: GPU_PLAN_SECONDS (570: for everything), GPU_PLAN (a file with other steps), CUDA_LIBRARIES (folders to be looked
# through first), and that of tests/gpu/run.sh.
set -euo pipefail

# name, seconds, command
plan() {
    if [[ -n ${GPU_PLAN:-} ]]; then
        cat "$GPU_PLAN"
        return
    fi
    cat <<'END'
nvidia-smi        5 nvidia-smi
libraries         5 libraries
check            10 check
cpu-and-gpu      15 gpu_test against_the_cpu
two-ranks        15 gpu_test two_ranks
late             55 gpu_test exchanges
broken           25 gpu_test broken_exchanges
late-on-4       100 gpu_test exchanges_of_four
overlap          20 gpu_test overlap
communicators    35 gpu_test several_ranks
layers           37 gpu_test layers
alexeyab         20 gpu_test alexeyab
training         15 gpu_test training
messages         10 gpu_test messages
sanitizer        40 gpu_test sanitizer
faults           20 gpu_test faults
speed            75 gpu_test speed
profile          40 gpu_test profile
mnist            10 gpu_test mnist
END
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# ---- Where things are ----

# The driver's library and those that the program asks for, of whichever CUDA it was built with.
cuda_names() {
    echo libcuda.so.1
    { ldd "$DARKNET" 2>/dev/null || true; } | awk '$1 ~ /^lib(cudart|cublas|curand|cudnn|nccl)\.so/ { print $1 }
        sub(/libcublas\.so/, "libcublasLt.so", $1) { print $1 }'
}

# Folders with CUDA's libraries: those of the toolkit, of the driver, and of Python's packages.
cuda_folders() {
    local name python found
    for name in "${names[@]}"; do
        found=$(ldconfig -p 2>/dev/null | sed -n "s|^\s*$name .* => ||p" | sed -n 1p)
        [[ -z $found ]] || dirname "$found"
    done
    for name in /usr/local/cuda*/lib64 /usr/local/cuda*/targets/x86_64-linux/lib /usr/local/nvidia/lib64 /usr/local/nvidia/lib \
        /usr/lib/x86_64-linux-gnu/nvidia/current; do
        [[ ! -d $name ]] || echo "$name"
    done
    for python in python3 /opt/*/.venv/bin/python3; do
        command -v "$python" >/dev/null || continue
        "$python" -c 'import nvidia; print("\n".join(nvidia.__path__))' 2>/dev/null | while read -r found; do
            for name in "$found"/*/lib; do [[ ! -d $name ]] || echo "$name"; done
        done || true
    done
}

# The folder of the first one that has it, for each of CUDA's libraries that the program asks for.
cuda_libraries() {
    local folder library folders names
    mapfile -t names < <(cuda_names)
    mapfile -t folders < <({ tr ':' '\n' <<<"${CUDA_LIBRARIES:-}"; cuda_folders; } | awk 'NF && !seen[$0]++')
    for library in "${names[@]}"; do
        for folder in "${folders[@]}"; do
            if [[ -e $folder/$library ]]; then
                echo "$folder"
                break
            fi
        done
    done | awk '!seen[$0]++' | paste -s -d :
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
    export DARKNET=$root/bin/darknet DARKNET_ALEXEYAB=$root/bin/darknet-alexeyab COMPARE_WEIGHTS=$root/bin/compare_weights GPU_TEST_PROGRAMS=$root/bin/tests
    # Of 3000 images.
    export GPU_TEST_ACCURACY=${GPU_TEST_ACCURACY:-0.95} GPU_TEST_EPOCHS=${GPU_TEST_EPOCHS:-20}
    # Open MPI, somewhere else than where it was built for. There may be no ssh, and none is needed.
    export OPAL_PREFIX=$root/mpi PMIX_MCA_mca_base_component_path=$root/mpi/pmix PATH=$root/mpi/bin:$PATH
    export OMPI_MCA_plm=isolated OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader OMPI_MCA_btl_vader_single_copy_mechanism=none
    LD_LIBRARY_PATH=$root/lib:$(cuda_libraries)
    export LD_LIBRARY_PATH
}

# ---- Steps ----

libraries() {
    local driver
    ldd "$DARKNET"
    if ldd "$DARKNET" | grep 'not found'; then
        echo "libraries are missing; looked through: $LD_LIBRARY_PATH"
        return 1
    fi
    # The driver is opened by name. Files that are not there make ls fail.
    driver=$({ ldconfig -p; tr ':' '\n' <<<"${LD_LIBRARY_PATH:-}" | sed 's|$|/libcuda.so.1|' | xargs ls; } 2>/dev/null || true)
    if ! grep -m 1 'libcuda\.so\.1' <<<"$driver"; then
        echo 'libcuda.so.1, which comes with the driver, was not found'
        return 1
    fi
}

check() {
    local said
    said=$("${mpiexec[@]}" -n 1 "$DARKNET" cmn check 2>&1) || { echo "$said"; return 1; }
    echo "$said"
    if grep -q ' 0 GPUs for this rank' <<<"$said"; then
        echo 'not ok - cmn check sees no GPU'
        return 1
    fi
}

# gpu_test PART: of tests/gpu/run.sh.
gpu_test() {
    GPU_TEST_ONLY=$1 bash "$root/tests/gpu/run.sh"
}

# ---- The plan ----

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

run_step() {
    local name=$1 limit=$2 planned=$2 status=0 begin=$SECONDS from printed ok bad skipped passed left
    shift 2
    left=$((GPU_PLAN_SECONDS - SECONDS))
    if ((left < 5)); then
        note "$name" "$limit" - "not run: the $GPU_PLAN_SECONDS s are over"
        return
    fi
    ((limit <= left)) || limit=$left
    printf '\n==== %s: %s (%d s at most)\n' "$name" "$*" "$limit" >>"$out/log"
    from=$(stat -c %s "$out/log")
    GPU_PLAN_STEP=$$-$name timeout --kill-after=5 "$limit" bash "${BASH_SOURCE[0]}" --step "$root" "$@" </dev/null >>"$out/log" 2>&1 || status=$?
    end_the_rest "$$-$name"
    printed=$(tail -c +$((from + 1)) "$out/log" | tr -d '\0')
    # What the training or test said that was ended.
    [[ $status != 1[23][47] || ! -f $GPU_TEST_TMP/log ]] || tail -n 40 "$GPU_TEST_TMP/log" | sed 's/^/# /' >>"$out/log"
    ok=$(grep -c '^ok [0-9]' <<<"$printed" || true)
    bad=$(grep -c '^not ok' <<<"$printed" || true)
    skipped=$(grep -c '^ok [0-9].*# SKIP' <<<"$printed" || true)
    passed=$( ((ok + bad < 2)) || echo ", $((ok - skipped)) passed$( ((skipped == 0)) || echo ", $skipped skipped")$( ((bad == 0)) || echo ", $bad not, first")")
    case $status in
        0) note "$name" "$planned" $((SECONDS - begin)) "ok$passed" ;;
        124 | 137) note "$name" "$planned" $((SECONDS - begin)) "NO END$passed; last: $(tail -n 1 <<<"$printed")" ;;
        *) note "$name" "$planned" $((SECONDS - begin)) "FAILED$passed: $(why "$printed")" ;;
    esac
}

rows=()
note() {
    rows+=("$(printf '%-14s %7s %6s  %s' "$@")")
    printf '==== %s: %s\n' "$1" "$4" | tee -a "$out/log"
}

main() {
    local name seconds words
    mkdir -p "$out"
    date '+==== %F %T' >>"$out/log"
    while read -r -u 3 name seconds words; do
        [[ -n $name ]] || continue
        [[ $# -eq 0 || " $* " == *" $name "* ]] || continue
        read -ra words <<<"$words"
        run_step "$name" "$seconds" "${words[@]}"
    done 3< <(plan)
    cp "$GPU_TEST_TMP/trace.json" "$out/" 2>/dev/null || true
    {
        printf '\n%-14s %7s %6s  %s\n' step planned took result
        printf '%s\n' "${rows[@]}"
        printf '%d s; %d steps, %d of them ok\n' "$SECONDS" "${#rows[@]}" "$(printf '%s\n' "${rows[@]}" | grep -cE '^[^ ]+ +[0-9]+ +[0-9]+  ok' || true)"
    } | tee -a "$out/log"
    ! grep -qvE '^[^ ]+ +[0-9]+ +[0-9]+  ok' <<<"$(printf '%s\n' "${rows[@]}")"
}

: "${GPU_PLAN_SECONDS:=570}" "${MPIEXEC:=mpiexec --oversubscribe --bind-to none$( ((UID)) || echo ' --allow-run-as-root')}"
read -ra mpiexec <<<"$MPIEXEC"
if [[ ${1:-} == --step ]]; then
    root=$2
    shift 2
    cd "$root"
    "$@"
    exit
fi
out=${1:-gpu-results}
mkdir -p "$out"
out=$(cd "$out" && pwd)
(($# == 0)) || shift
export GPU_TEST_TMP=${GPU_TEST_TMP:-${TMPDIR:-/tmp}/gpu-test-$UID} GPU_TEST_REQUIRED=1 GPU_TEST_LIMIT=${GPU_TEST_LIMIT:-75}
export GPU_PLAN_SECONDS MPIEXEC NCCL_DEBUG=${NCCL_DEBUG:-WARN}
find_files
main "$@"
