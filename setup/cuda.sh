#!/usr/bin/env bash
# cuda.sh OUT: finds the CUDA toolkit, tries it, and writes what the Makefile needs to know to OUT.
# It reads NVCC or CUDA_HOME (else nvcc of PATH, else /usr/local/cuda), CC, ARCH (numbers as 80 or 80,90), CUDNN=1 and NCCL=1 (these
# are used) and KEY (a line that OUT begins with) from the environment. One line says what is missing.
set -euo pipefail

out=$1
read -ra cc <<<"${CC:-gcc}" # may be ccache gcc
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

die() {
    echo "setup/cuda.sh: $*" >&2
    exit 1
}

find_nvcc() {
    if [[ -n ${NVCC:-} ]]; then
        command -v "$NVCC" || die "NVCC=$NVCC is not a program"
    elif [[ -n ${CUDA_HOME:-} ]]; then
        [[ -x $CUDA_HOME/bin/nvcc ]] || die "CUDA_HOME=$CUDA_HOME holds no bin/nvcc"
        echo "$CUDA_HOME/bin/nvcc"
    elif ! command -v nvcc; then
        [[ -x /usr/local/cuda/bin/nvcc ]] ||
            die 'the compiler nvcc was not found: install the CUDA toolkit (11.8 to 13), or set CUDA_HOME to its folder'
        echo /usr/local/cuda/bin/nvcc
    fi
}

# Prints the folders that nvcc itself gives to the compiler (-I) or linker (-L), without the stubs of the driver.
folders_of() {
    grep -E '^#\$ (INCLUDES|LIBRARIES)=' "$work/dryrun" | grep -oE -- "$1[^\" ]+" | sed "s/^$1//" |
        grep -vE '/stubs$|^/usr/include/?$' | xargs -r -d '\n' realpath -- || true
}

# The program has binary code for every generation that this toolkit knows, which also runs on later members of that generation, and
# portable code of the newest one, for GPUs to come, and of the oldest one, for those between.
architectures() {
    local known wanted=() number newest oldest
    known=$("$nvcc" --list-gpu-arch | sed 's/^compute_//')
    if [[ -n ${ARCH:-} ]]; then
        for number in ${ARCH//,/ }; do
            number=${number#sm_}
            grep -qx -- "$number" <<<"$known" ||
                die "ARCH=$ARCH: this nvcc does not know $number; it knows: ${known//$'\n'/ }"
            wanted+=("$number")
        done
    else
        for number in 60 70 75 80 90 100 120; do
            [[ $number != 75 || " ${wanted[*]} " != *' 70 '* ]] || continue
            if grep -qx "$number" <<<"$known"; then wanted+=("$number"); fi
        done
    fi
    newest=$(printf '%s\n' "${wanted[@]}" | sort -n | tail -n 1)
    oldest=$(printf '%s\n' "${wanted[@]}" | sort -n | head -n 1)
    for number in "${wanted[@]}"; do printf -- '-gencode arch=compute_%s,code=sm_%s ' "$number" "$number"; done
    [[ $oldest == "$newest" ]] || printf -- '-gencode arch=compute_%s,code=compute_%s ' "$oldest" "$oldest"
    printf -- '-gencode arch=compute_%s,code=compute_%s\n' "$newest" "$newest"
}

# probe NAME HEADER EXPRESSION FLAG...: compiles and links a program that calls EXPRESSION, and prints why that fails, if it does.
probe() {
    local header=$1 expression=$2
    shift 2
    printf '#include <stdio.h>\n%s\nint main(void) { printf("%%d", (int)(%s)); return 0; }\n' "$header" "$expression" >"$work/probe.c"
    "${cc[@]}" "${cflags[@]}" -o "$work/probe" "$work/probe.c" "${ldflags[@]}" "$@" >"$work/log" 2>&1
}

first_error() {
    grep -m1 -E 'error|cannot find|undefined' "$work/log" || head -n 1 "$work/log"
}

check_libraries() {
    "$nvcc" -c -o "$work/probe.o" "$work/probe.cu" >"$work/log" 2>&1 ||
        die "$nvcc cannot compile: $(first_error)$(! grep -q 'unsupported GNU version' "$work/log" ||
            echo " (an older one: make NVCC_PREPEND_FLAGS='-ccbin g++-11')")"
    probe $'#include <cuda_runtime.h>\n#include <cublas_v2.h>\n#include <curand.h>' 'cudaFree(0) + curandGetVersion(0) + cublasDestroy(0)' \
        -lcudart -lcublas -lcurand || die "CUDA's libraries cudart, cublas and curand cannot be used: $(first_error)"
    libs=(-lcudart -lcublas -lcurand)
    if [[ ${CUDNN:-} == 1 ]]; then
        probe $'#include <cudnn.h>\n#if CUDNN_MAJOR * 100 + CUDNN_MINOR < 801\n#error cuDNN is older than 8.1\n#endif' 'cudnnGetVersion()' -lcudnn -lcudart ||
            die "CUDNN=1: cuDNN 8.1 or newer was not found where CUDA is ($(first_error)): install it, or build without CUDNN=1"
        libs+=(-lcudnn)
    fi
    if [[ ${NCCL:-} == 1 ]]; then
        probe $'#include <nccl.h>\n#if NCCL_VERSION_CODE < 21400\n#error NCCL is older than 2.14\n#endif' 'ncclGetVersion(0)' -lnccl -lcudart ||
            die "NCCL=1: NCCL 2.14 or newer was not found where CUDA is ($(first_error)): install it, or build without NCCL=1"
        libs+=(-lnccl)
    fi
}

main() {
    local release folder arch known
    echo '__global__ void probe(void) {} int main(void) { return 0; }' >"$work/probe.cu"
    nvcc=$(find_nvcc)
    release=$("$nvcc" --version | sed -nE 's/.*release ([0-9]+)\.([0-9]+).*/\1 \2/p')
    [[ -n $release ]] || die "$nvcc does not tell its version"
    ((${release% *} * 100 + ${release#* } >= 1108)) || die "$nvcc is of CUDA ${release/ /.}: 11.8 or newer is needed"
    # Before anything is compiled, which takes seconds.
    arch=$(architectures)
    "$nvcc" --dryrun -o "$work/x" "$work/probe.cu" >"$work/dryrun" 2>&1 || true
    cflags=() ldflags=()
    while IFS= read -r folder; do cflags+=(-isystem "$folder"); done < <(folders_of -I)
    # The program names a folder of this machine only where the loader does not know it: it would be wrong on another machine.
    known=$(/sbin/ldconfig -p 2>/dev/null | sed -n 's|.*libcudart.* => \(.*\)/[^/]*|\1|p' | xargs -r realpath -- || true)
    while IFS= read -r folder; do
        ldflags+=(-L"$folder")
        grep -qxF -- "$folder" <<<"$known" || ldflags+=("-Wl,-rpath,$folder")
    done < <(folders_of -L)
    check_libraries
    mkdir -p "$(dirname "$out")"
    printf '%s\n' "# ${KEY:-}" "NVCC := $nvcc" "CUDA_CFLAGS := ${cflags[*]}" "CUDA_LIBS := ${ldflags[*]} ${libs[*]} -lstdc++" \
        "CUDA_ARCH := $arch" >"$out.new"
    mv "$out.new" "$out"
}

main
