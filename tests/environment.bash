# shellcheck shell=bash disable=SC2034  # read by those who load it
# What `make test` tells the tests, for those who start them without it.

REPO=$(cd "${BASH_SOURCE[0]%/*}/.." && pwd)
: "${TREE:=pjreddie}" "${ALEXEYAB_BUILD=$(find "$REPO/build" -maxdepth 1 -name 'cpu-alexeyab*-gemm' -print -quit 2>/dev/null || true)}"
if [[ $TREE == alexeyab ]]; then : "${BUILD:=$ALEXEYAB_BUILD}"; fi
: "${BUILD:=$REPO/build/cpu}" "${DARKNET:=$BUILD/bin/darknet}" "${CC:=gcc}" "${SAN:=}" "${NP:=2}"
if [[ -z ${MPIEXEC:-} ]]; then
    MPIEXEC='mpiexec --oversubscribe --bind-to none --mca mpi_yield_when_idle 1'
    [[ $(id -u) -ne 0 ]] || MPIEXEC+=' --allow-run-as-root'
fi
read -ra mpiexec <<<"$MPIEXEC"
# Open MPI would read the rows of a loop that starts it, so that the loop ends after its first turn.
[[ $MPIEXEC != *' --mca '* ]] || mpiexec+=(--stdin none)
# As tests/tree.mk has it.
cached=${XDG_CACHE_HOME:-$HOME/.cache}/darknet-cmn/alexeyab-59596d78
[[ -n ${ALEXEYAB_TREE:-} || ! -d $cached/src ]] || ALEXEYAB_TREE=$cached
# Open MPI would take ob1 here anyway. Its other ways look for adapters first, 0.2 s in each process (libpsm2). Plug-ins of hwloc
# look for X servers, hwloc itself reads what each PCI device says of itself, which is slow in a virtual machine, and PMIx clears
# 8 MiB for each job. Without all that the start of a small job takes two thirds of the processor time.
export HWLOC_PLUGINS_PATH=${HWLOC_PLUGINS_PATH:-/none} HWLOC_COMPONENTS=${HWLOC_COMPONENTS:--linux:pci}
export NS_META_SEG_SIZE=65536 NS_DATA_SEG_SIZE=65536
# OpenBLAS starts a thread for each core when it is loaded, which spins for a while before it sleeps, also in ranks that then compute
# with one: a tenth of the processor time of a small job. Tests of what the threads do set another number, or none.
export OPENBLAS_NUM_THREADS=${OPENBLAS_NUM_THREADS:-1}
export TREE ALEXEYAB_BUILD BUILD DARKNET CC SAN NP MPIEXEC ALEXEYAB_TREE=${ALEXEYAB_TREE:-} OMPI_MCA_pml=${OMPI_MCA_pml:-ob1}
