#!/usr/bin/env bats
# examples/world: a program of one's own, compiled by the two commands of its README, and started.
# shellcheck disable=SC2154  # mpiexec: helpers.bash

load helpers

setup() {
    enter_folder
    seq 1000 | awk '{ print $1, 2 * $1 + 1 + ($1 % 2 - 0.5) / 10 }' >points.txt
    # Sanitizers must be those of the libraries.
    flags=()
    [[ -z $SAN ]] || flags=("-fsanitize=$SAN")
}

# compile_in_tree: the README's command, for the variant that is tested. Paths may hold spaces.
compile_in_tree() {
    local command
    command=$(grep '^mpicc ' "$REPO/examples/world/README.md")
    ln -sfn "$BUILD" variant
    ln -sfn "$REPO/cmn" cmn
    ln -sfn "$REPO/examples" examples
    bash -c "${command//build\/cpu/variant} -Wall -Wextra -Werror ${flags[*]}"
}

line_on() {
    timeout "$HANG_LIMIT" "${mpiexec[@]}" -n "$1" ./line "${@:2}"
}

@test "the README's command compiles it in the build tree; 1 and 3 ranks find the same line, and so does a process without mpiexec" {
    compile_in_tree
    for n in 1 3; do
        line_on "$n" points.txt >out.txt
        cat out.txt
        [[ $(wc -l <out.txt) -eq 1 ]]
        grep -qE "^y = 2\.000 x \+ 1\.000, off by 0\.050 at most; 1000 points on $n ranks? of 1 node$" out.txt
    done
    run -0 ./line points.txt
    [[ $output == 'y = 2.000 x + 1.000, off by 0.050 at most; 1000 points on 1 rank of 1 node' ]]
    # An error of one rank is one line, and ends all.
    fails_clearly 'cmn\[rank 0@.*file of points cannot be read' "${mpiexec[@]}" -n 2 ./line nothing.txt
    echo 1 2 three >points.txt
    fails_clearly 'two numbers a line' "${mpiexec[@]}" -n 3 ./line points.txt
    fails_clearly 'usage: ' "${mpiexec[@]}" -n 2 ./line
}

@test "a program that starts and ends MPI itself, with or without threads" {
    # shellcheck disable=SC2016
    printf '%s\n' '#include <mpi.h>' '#include <cmn.h>' 'int main(int argc, char **argv) {' \
        'int provided; float x;' \
        'if (argc > 1) MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided); else MPI_Init(&argc, &argv);' \
        'cmn_start();' 'x = 2 * (float)cmn_rank();' 'cmn_mean(&x, 1);' 'if (!cmn_rank()) printf("%g of %d", x, cmn_size());' \
        'cmn_barrier();' 'MPI_Finalize();' 'cmn_mean(&x, 1);' 'if (x == 2) printf(", then %d\n", cmn_size());' 'return 0; }' >own.c
    ln -sfn "$BUILD" variant
    libraries=$(grep '^mpicc ' "$REPO/examples/world/README.md" | sed "s|build/cpu|variant|g" | grep -o -- '-Wl,--start-group.*')
    eval "mpicc -Wall -Wextra -Werror ${flags[*]} -I'$REPO/cmn' -o own own.c $libraries"
    for threads in '' threads; do
        # shellcheck disable=SC2086
        timeout "$HANG_LIMIT" "${mpiexec[@]}" -n 3 ./own $threads | sort >out.txt
        cat out.txt
        [[ $(cat out.txt) == $', then 1\n, then 1\n2 of 3, then 1' ]]
    done
}

@test "the README's command compiles it against an installation" {
    command -v pkg-config >/dev/null || skip 'pkg-config is not installed'
    [[ -z $SAN ]] || skip 'only the plain build is installed'
    command=$(grep '^gcc ' "$REPO/examples/world/README.md")
    # The shell cuts what pkg-config prints at spaces.
    prefix=$(mktemp -d /tmp/cmn-world-XXXXXX)
    make -C "$REPO" install PREFIX="$prefix" >/dev/null
    export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
    cp -r "$REPO/examples" examples
    bash -c "$command"
    line_on 2 points.txt | grep '^y = 2.000 x + 1.000, '
    rm -r "$prefix"
}

@test "cmn.h alone gives MPI's groups only to those who have mpi.h" {
    printf '%s\n' '#include <cmn.h>' 'int main(void) { return cmn_get_world().rank; }' >plain.c
    gcc -Wall -Wextra -Werror -fsyntax-only -I"$REPO/cmn" plain.c
    printf '%s\n' '#include <cmn.h>' '#include <mpi.h>' '#include <cmn.h>' \
        'int main(void) { return cmn_intra_comm() == MPI_COMM_NULL; }' >later.c
    mpicc -Wall -Wextra -Werror -fsyntax-only -I"$REPO/cmn" later.c
    printf '%s\n' '#include <cmn.h>' 'int main(void) { return cmn_intra_comm() == 0; }' >without.c
    run -1 mpicc -Werror -fsyntax-only -I"$REPO/cmn" without.c
}

@test "C++ reads cmn.h" {
    command -v g++ >/dev/null || skip 'g++ is not installed'
    printf '%s\n' '#include <cmn.h>' 'int main() { struct cmn_world w = cmn_get_world(); return w.rank; }' >plain.cc
    g++ -Wall -Wextra -Werror -fsyntax-only -I"$REPO/cmn" plain.cc
}
