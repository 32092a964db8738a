#!/usr/bin/env bats
# The build for GPUs where its compiler is, and what it does where no GPU is. What needs a GPU: tests/gpu/run.sh.
# Environment: CUDA_HOME (the toolkit), CUDA_HOMES (others that are to compile it, too: folder:folder).

# shellcheck disable=SC2154  # mpiexec: helpers.bash

load helpers

# What of cuDNN and NCCL is installed, as arguments of make; each by itself only where not both are.
parts() {
    local part
    if CUDNN=1 NCCL=1 "$REPO/setup/cuda.sh" "$BATS_FILE_TMPDIR/probe.mk" 2>/dev/null; then printf '%s\n' CUDNN=1 NCCL=1 && return; fi
    for part in CUDNN NCCL; do
        if env "$part=1" "$REPO/setup/cuda.sh" "$BATS_FILE_TMPDIR/probe.mk" 2>/dev/null; then echo "$part=1"; fi
    done
}

# generations: of those that make would compile for the oldest and the newest, a line each.
generations() {
    sed -n 's/^CUDA_ARCH := //p' "$BATS_FILE_TMPDIR/probe.mk" | grep -o 'code=sm_[0-9]*' | sed 's/.*_//' | sort -n | sed -n '1 p; $ p'
}

# architecture BUILD: ARCH=… for make: the oldest generation, which lacks most; each one more has the same source, and takes as
# long. A build that is there keeps what it was made for.
architecture() {
    if [[ -x $1/bin/darknet && -f $1/cuda.mk ]]; then
        sed -nE '1 s/.* (ARCH=[0-9a-z_,]*) .*/\1/p' "$1/cuda.mk"
    else
        echo "ARCH=$(generations | sed -n 1p)"
    fi
}

setup_file() {
    [[ -z $SAN ]] || return 0
    # One run of the compiler decides; what it says is the reason to skip.
    mapfile -t parts_here < <(parts)
    if ((!${#parts_here[@]})) && ! "$REPO/setup/cuda.sh" "$BATS_FILE_TMPDIR/probe.mk" 2>"$BATS_FILE_TMPDIR/why"; then return 0; fi
    name=$(printf -- '-%s' "${parts_here[@]%=1}")
    [[ ${#parts_here[@]} -gt 0 ]] || name=
    build=$REPO/build/gpu${name,,}
    parts_here+=("$(architecture "$build")")
    echo "# make GPU=1 ${parts_here[*]}" >&3
    printf '%s\n' "${parts_here[@]}" >"$BATS_FILE_TMPDIR/parts"
    touch "$BATS_FILE_TMPDIR/cuda"
    targets=(all)
    [[ " ${parts_here[*]} " != *' NCCL=1 '* ]] || targets+=(gpu-tests)
    make -C "$REPO" GPU=1 "${parts_here[@]}" "${targets[@]}" >"$BATS_FILE_TMPDIR/build.log" 2>&1 || true
    echo "$build/bin/darknet" >"$BATS_FILE_TMPDIR/program"
}

setup() {
    enter_folder
    [[ -z $SAN ]] || skip 'the build is tested without sanitizers'
}

# Sets gpu to the GPU build.
need_build() {
    [[ -f $BATS_FILE_TMPDIR/cuda ]] || skip "$(cat "$BATS_FILE_TMPDIR/why")"
    gpu=$(cat "$BATS_FILE_TMPDIR/program")
    [[ -x $gpu ]] || skip 'it is not built'
}

no_gpu() {
    [[ $("$gpu" reset mlp.cfg mlp.weights out 2>&1 || true) == *'cannot be used'* ]]
}

@test "make GPU=1 compiles and links without a warning" {
    [[ -f $BATS_FILE_TMPDIR/cuda ]] || skip "$(cat "$BATS_FILE_TMPDIR/why")"
    cat "$BATS_FILE_TMPDIR/build.log"
    [[ -x $(cat "$BATS_FILE_TMPDIR/program") ]]
    run -1 grep -iE 'warning|error|\*\*\*' "$BATS_FILE_TMPDIR/build.log"
    # A second run does nothing, and the build for the CPU is another one.
    mapfile -t parts_here <"$BATS_FILE_TMPDIR/parts"
    run -0 make -C "$REPO" --no-print-directory GPU=1 "${parts_here[@]}"
    [[ -z $output ]]
    cmp "$REPO/bin/darknet-gpu" "$(cat "$BATS_FILE_TMPDIR/program")"
    run -1 cmp -s "$REPO/bin/darknet-gpu" "$DARKNET"
    # Other toolkits, where CUDA_HOMES names their folders (folder:folder). B is a build that is nobody's else.
    IFS=: read -ra homes <<<"${CUDA_HOMES:-}"
    for home in "${homes[@]}"; do
        export CUDA_HOME=$home
        rm -f "$REPO/build/gpu-other/cuda.mk"
        mapfile -t parts_here < <(parts)
        echo "# make GPU=1 CUDA_HOME=$home ${parts_here[*]}" >&3
        run -0 env -u NVCC make -C "$REPO" --no-print-directory GPU=1 "${parts_here[@]}" ARCH=80 B=build/gpu-other build/gpu-other/bin/darknet
        echo "$output"
        [[ ${lines[0]} == *'CUDA  build/gpu-other/cuda.mk' && ! $output =~ [Ww]arning ]]
    done
}

@test "a GPU build where no GPU is: one line, and a status" {
    need_build
    small_data 60 20
    mlp_cfg >mlp.cfg
    no_gpu || skip 'there is a GPU'
    fails_clearly 'GPU 0 cannot be used: .*-nogpu' "$gpu" classifier train small.data mlp.cfg
    fails_clearly 'GPU 0 cannot be used: .*-nogpu' "${mpiexec[@]}" -n 2 "$gpu" classifier train small.data mlp.cfg -cmn
    fails_clearly 'GPU 3 cannot be used: ' "$gpu" classifier train small.data mlp.cfg -i 3
}

@test "a GPU build with -nogpu gives the bits of the CPU build" {
    need_build
    small_data 200 20
    conv_cfg >conv.cfg
    CMN_DEBUG_ONEDNN=off train_on 2 conv.cfg
    mv out/conv.weights cpu.weights
    timeout "$HANG_LIMIT" "${mpiexec[@]}" -n 2 "$gpu" classifier train small.data conv.cfg -cmn -cmn_seed 7 -cmn_validate 0 -nogpu
    cmp out/conv.weights cpu.weights
    fails_clearly 'pure_nccl cannot be used here: ' "${mpiexec[@]}" -n 2 "$gpu" classifier train small.data conv.cfg -cmn -nogpu \
        -cmn_communicator pure_nccl
}

@test "a GPU build lists the communicators and keys of the CPU build" {
    need_build
    diff <("$gpu" cmn list -md) <("$DARKNET" cmn list -md)
}

@test "NCCL 2.14 is enough to compile with" {
    for version in 21400 22809; do
        # shellcheck disable=SC2046  # flags of MPI
        gcc -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -DGPU -DCMN_NCCL -DNCCL_VERSION_CODE=$version -isystem "$REPO/tests/gpu/fake" \
            -I"$REPO/cmn" $(mpicc --showme:compile) -c "$REPO/cmn/transports/nccl.c" -o nccl-$version.o
    done
}

@test "the real NCCL and cuDNN have the numbers and words that the module counts on" {
    need_build
    [[ $(cat "$BATS_FILE_TMPDIR/parts") == *CUDNN=1*NCCL=1* ]] || skip 'cuDNN or NCCL is not installed'
    made=$(dirname "$gpu")/../cuda.mk
    libraries=$(sed -n 's/^CUDA_LIBS := //p' "$made")
    # shellcheck disable=SC2046,SC2086  # flags
    gcc -std=c11 -Wall -Wextra -Werror $(sed -n 's/^CUDA_CFLAGS := //p' "$made") "$REPO/tests/gpu/real/libraries.c" -o libraries \
        $libraries $(grep -o -- '-L[^ ]*' <<<"$libraries" | sed 's/^-L/-Wl,-rpath,/')
    run -0 ./libraries
    [[ $output == 'NCCL '*', cuDNN '* ]]
}

# 65536 registers and 48 KiB of shared memory for blocks of 256 threads: two blocks at least find room on each multiprocessor.
@test "each kernel of the module keeps its numbers in registers, of which there are enough" {
    need_build
    # shellcheck disable=SC2046  # flags
    $(sed -n 's/^NVCC := //p' "$BATS_FILE_TMPDIR/probe.mk") $(generations | sed 's/.*/-gencode arch=compute_&,code=sm_&/') -O2 -I"$REPO/cmn" \
        -Xptxas -v -fatbin "$REPO/cmn/mpi/kernels.cu" -o kernels.fatbin 2>said
    cat said
    [[ $(grep -c 'Used [0-9]* registers' said) -ge 30 ]]
    run -1 grep -E '[1-9][0-9]* bytes spill' said
    sed -nE 's/.*Used ([0-9]+) registers.*/\1/p' said | awk '$1 > 128 { exit 1 }'
    sed -nE 's/.* ([0-9]+) bytes smem.*/\1/p' said | awk '$1 > 24576 { exit 1 }'
}

@test "a build for the CPU says what GPUs need" {
    small_data 60 20
    mlp_cfg >mlp.cfg
    fails_clearly_on 2 'pure_nccl cannot be used here: built without NCCL: make GPU=1 NCCL=1' \
        classifier train small.data mlp.cfg -cmn -cmn_communicator pure_nccl
    fails_clearly_on 2 'does not go with communicator naive: .*: use flat' \
        classifier train small.data mlp.cfg -cmn -cmn_communicator naive -cmn_compress fp16
    fails_clearly_on 2 '-gpus 0,1: with -cmn each rank trains on one device' \
        classifier train small.data mlp.cfg -cmn -gpus 0,1
    train_on 2 mlp.cfg -i 7
}

@test "what is missing to build for GPUs is said in one line" {
    run -1 env CUDA_HOME=/nonexistent "$REPO/setup/cuda.sh" out.mk
    [[ $output == 'setup/cuda.sh: CUDA_HOME=/nonexistent holds no bin/nvcc' && ! -e out.mk ]]
    run -1 env NVCC=/nonexistent/nvcc "$REPO/setup/cuda.sh" out.mk
    [[ $output == 'setup/cuda.sh: NVCC=/nonexistent/nvcc is not a program' ]]
    run -2 make -C "$REPO" --no-print-directory NCCL=1
    [[ $output == *'add GPU=1'* ]]
    run -2 make -C "$REPO" --no-print-directory GPU=1 SAN=address
    [[ $output == *'do not go together'* ]]
    [[ -f $BATS_FILE_TMPDIR/cuda ]] || skip 'no CUDA for the rest'
    # Portable code of the oldest and the newest, by a compiler of two words. No folder of this machine where the loader knows it.
    run -0 env CC='env gcc' ARCH=80,90 "$REPO/setup/cuda.sh" out.mk
    grep '^CUDA_ARCH := .*code=sm_80 .*code=sm_90 .*arch=compute_80,code=compute_80 .*code=compute_90$' out.mk
    if /sbin/ldconfig -p | grep libcudart; then run -1 grep -e -rpath out.mk; fi
    run -1 env ARCH=80,7 "$REPO/setup/cuda.sh" out.mk
    [[ $output == *'does not know 7; it knows: '* ]]
    # An old compiler, a broken one, and a toolkit without its libraries.
    nvcc=$(sed -n 's/^NVCC := //p' "$BATS_FILE_TMPDIR/probe.mk")
    printf '#!/bin/sh\necho "release 10.2, V10.2.89"\n' >old
    printf '#!/bin/sh\ncase "$*" in *-c*) echo "x.cu: error: broken" >&2; exit 1 ;; esac\nexec "%s" "$@"\n' "$nvcc" >broken
    printf '#!/bin/sh\ncase "$*" in *--dryrun* | *-c*) exit 0 ;; esac\nexec "%s" "$@"\n' "$nvcc" >bare
    chmod +x old broken bare
    run -1 env NVCC=./old "$REPO/setup/cuda.sh" out.mk
    [[ $output == *'is of CUDA 10.2: 11.8 or newer is needed' ]]
    run -1 env NVCC=./broken "$REPO/setup/cuda.sh" out.mk
    [[ $output == *'cannot compile: '*broken* && $(wc -l <<<"$output") -eq 1 ]]
    sed -i 's/: broken/: #error -- unsupported GNU version!/' broken
    run -1 env NVCC=./broken "$REPO/setup/cuda.sh" out.mk
    [[ $output == *"unsupported GNU version! (an older one: make NVCC_PREPEND_FLAGS='-ccbin g++-11')" ]]
    # shellcheck disable=SC2086  # may be ccache gcc
    if ! echo '#include <cuda_runtime.h>' | ${CC:-gcc} -E - >/dev/null 2>&1; then
        run -1 env NVCC=./bare "$REPO/setup/cuda.sh" out.mk
        [[ $output == *"CUDA's libraries cudart, cublas and curand cannot be used: "* && $(wc -l <<<"$output") -eq 1 ]]
    fi
}
