#!/usr/bin/env bash
# flags.sh compile|link LIBRARY...: prints the compiler's flags for libraries by pkg-config's names: its flags where it knows them,
# else -l and the name. The library `mpi` is the one that MPICC (mpicc) compiles for. Fails where there is no MPICC.
set -euo pipefail

: "${MPICC:=mpicc}" "${PKG_CONFIG:=pkg-config}"

# Prints what a wrapper would run, without its compiler. Open MPI, MPICH and its descendants know -show.
mpi() {
    local shown word
    shown=$($MPICC -show)
    for word in $shown; do
        case $1:$word in
            # Some MPI headers warn.
            compile:-I*) printf '%s\n' -isystem "${word#-I}" ;;
            compile:-D* | *:-pthread) printf '%s\n' "$word" ;;
            link:-[ID]*) ;;
            link:-* | link:*.so | link:*.a) printf '%s\n' "$word" ;;
        esac
    done
}

# pkg-config's folder of cJSON is one too deep for <cjson/cJSON.h>, and the compiler's own folders must keep their place.
library() {
    local found
    case $1 in
        compile)
            found=$($PKG_CONFIG --cflags "$2" 2>/dev/null) || return 0
            sed -E 's|(-I[^ ]*)/cjson/?( \|$)|\1\2|g; s|-I/usr/include/?( \|$)||g' <<<"$found"
            ;;
        link) $PKG_CONFIG --libs "$2" 2>/dev/null || echo "-l${2#lib}" ;;
    esac
}

what=${1:?usage: flags.sh compile|link LIBRARY...}
shift
for name in "$@"; do
    if [[ $name == mpi ]]; then mpi "$what"; else library "$what" "$name"; fi
done | xargs
