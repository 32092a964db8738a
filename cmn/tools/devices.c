/* What a rank knows about its GPU, and about what MPI and NCCL can do with it. */
#include <mpi.h>
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif
#ifdef CMN_NCCL
#include <nccl.h>
#endif
#include <stdio.h>

#include "mpi/device.h"
#include "base/log.h"
#include "tools/host_info.h"

/* What the library says of itself: of how it was built, not of this machine. */
static const char *mpi_says(void)
{
#if defined(MPIX_CUDA_AWARE_SUPPORT)
    return MPIX_Query_cuda_support() ? "MPI says that it is CUDA-aware"
                                     : "MPI says that it is not CUDA-aware";
#else
    return "MPI does not say whether it is CUDA-aware";
#endif
}

/* A message from GPU memory to GPU memory, of this rank to itself. Only where the library says that it can:
 * elsewhere it would crash. NULL, or the reason of the failure. */
static const char *try_mpi(const struct cmn_topology *t)
{
    static const float sent[2] = {1.5F, -3};
    float got[2] = {0, 0}, *gpu = NULL;
    const char *why = NULL;

    if (cmn_device_memory(&gpu, 4)) {
        return cmn_reason();
    }
    if (cmn_device_write(gpu, sent, 2) ||
        cmn_mpi_check(MPI_Sendrecv(gpu, 2, MPI_FLOAT, t->rank, 4, gpu + 2, 2, MPI_FLOAT, t->rank, 4,
                                   t->world, MPI_STATUS_IGNORE),
                      "MPI_Sendrecv") ||
        cmn_device_read(got, gpu + 2, 2)) {
        why = cmn_reason();
    } else if (got[0] != sent[0] || got[1] != sent[1]) {
        why = "wrong values arrived";
    }
    cmn_device_free(gpu);
    return why;
}

static void describe_cuda(struct cmn_host_info *f, const struct cmn_topology *t)
{
    const char *tried = "not tried";

    if (!cmn_device_built()) {
        snprintf(f->cuda, sizeof f->cuda, "not built in; %s", mpi_says());
        return;
    }
    if (t->device >= 0 && !cmn_device_refuses_mpi(t)) {
        tried = try_mpi(t);
    }
    snprintf(f->cuda, sizeof f->cuda, "built in, %d GPU%s for this rank; %s; tried: %.100s",
             cmn_device_count(), cmn_device_count() == 1 ? "" : "s", mpi_says(),
             tried ? tried : "right");
}

void cmn_host_info_devices(struct cmn_host_info *f, const struct cmn_topology *t)
{
    f->device = t->device;
    f->gpus = cmn_device_built() ? cmn_device_count() : -1;
    describe_cuda(f, t);
#ifdef CMN_NCCL
    int version = 0;
    if (ncclGetVersion(&version) == ncclSuccess) {
        snprintf(f->nccl, sizeof f->nccl, "%d.%d.%d", version / 10000, version / 100 % 100,
                 version % 100);
    } else {
        snprintf(f->nccl, sizeof f->nccl, "version unknown");
    }
#else
    snprintf(f->nccl, sizeof f->nccl, "not built in");
#endif
}
