/* The NCCL transport: sums over the GPUs of a group on a CUDA stream of its own, in the background
 * while Darknet computes (nccl_background.c, nccl_gather.c).
 *
 * Nothing here blocks inside NCCL or CUDA: NCCL's communicator is non-blocking, and the end of an
 * operation is an event that is polled together with NCCL's state. A dead peer, or `cmn_timeout`
 * seconds without an end, abort the communicator and end the job. */
#include "transports/nccl.h"

#ifdef CMN_NCCL

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "mpi/device.h"
#include "transports/nccl_internal.h"

const char *cmn_nccl_refuses(const struct cmn_topology *t, const struct cmn_options *o)
{
    (void)o;
    if (t->device < 0) {
        return "the gradients are in the CPU's memory: nccl connects GPUs";
    }
    return t->shares_gpus ? "NCCL refuses several ranks on one GPU: use non_cuda_aware, or set "
                            "NCCL_MULTI_RANK_GPU_ENABLE=1 where NCCL knows that"
                          : NULL;
}

/* The stream has the highest priority: other ranks wait for its work, so it goes before Darknet's
 * kernels. */
static cudaError_t create_stream(cudaStream_t *stream)
{
    int least, greatest;
    cudaError_t code = cudaDeviceGetStreamPriorityRange(&least, &greatest);

    return code != cudaSuccess
               ? code
               : cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, greatest);
}

int cmn_nccl_open(void **self, const struct cmn_group *group)
{
    struct nccl *c = cmn_calloc(1, sizeof *c);
    cudaError_t code;

    *self = c;
    c->group = group;
    c->given = -1;
    snprintf(c->what, sizeof c->what, "start");
    c->began = cmn_clock();
    MPI_Comm_rank(group->comm, &c->rank);
    MPI_Comm_size(group->comm, &c->size);
    code = create_stream(&c->stream);
    if (code == cudaSuccess) {
        code = cudaEventCreateWithFlags(&c->done, cudaEventDisableTiming);
    }
    return cmn_device_check(code, "stream and events") ? cmn_nccl_failed(c) : cmn_nccl_connect(c);
}

void cmn_nccl_close(void *self)
{
    struct nccl *c = self;

    if (!c) {
        return;
    }
    cmn_nccl_forget_blocks(c);
    cmn_nccl_disconnect(c);
    if (c->hung) {
        return; /* cudaFree() would wait for its kernels for ever; the process ends anyway */
    }
    cmn_nccl_free_blocks(c);
    cmn_nccl_free_jobs(c);
    cmn_nccl_free_gathers(c);
    cmn_nccl_destroy(c->done);
    if (c->stream) {
        cudaStreamDestroy(c->stream);
    }
    free(c);
}

#else

const char *cmn_nccl_refuses(const struct cmn_topology *t, const struct cmn_options *o)
{
    (void)t;
    (void)o;
    return "built without NCCL: make GPU=1 NCCL=1";
}

#endif
