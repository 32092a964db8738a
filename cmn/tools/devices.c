/* What a rank knows about its GPU, and about what MPI and NCCL can do with it. */
#include <mpi.h>
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif
#include <stdio.h>

#include "tools/facts.h"

/* What the library says of itself. A build for GPUs tries it, too: the answer is about how MPI was built, not about
 * this machine. */
static void ask_mpi(struct cmn_facts *f)
{
#if defined(MPIX_CUDA_AWARE_SUPPORT)
    snprintf(f->cuda, sizeof f->cuda, "MPI says that it is %sCUDA-aware",
             MPIX_Query_cuda_support() ? "" : "not ");
#else
    snprintf(f->cuda, sizeof f->cuda, "MPI does not say whether it is CUDA-aware");
#endif
}

void cmn_facts_devices(struct cmn_facts *f, const struct cmn_topology *t)
{
    f->device = t->device;
    snprintf(f->nccl, sizeof f->nccl, "not built in");
    ask_mpi(f);
}
