/* nccl: the GPUs of a group through NCCL, on a stream of their own (nccl_state.h: how it is waited for). */
#include "transports/nccl.h"
#include "transports/transport.h"

#ifdef CMN_NCCL
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "transports/nccl_state.h"

static const char *refuses_nccl(const struct cmn_topology *t, const struct cmn_options *o)
{
    (void)o;
    return t->device < 0 ? "the gradients are in the CPU's memory: nccl connects GPUs" : NULL;
}

/* An operation on n floats may be queued. */
static int started(struct cmn_nccl_state *c, const char *what, size_t n)
{
    return cmn_nccl_starts(c, what, n) || cmn_nccl_orders(c) ? -1 : 0;
}

/* `code` is what the call that queued the operation has returned. */
static int ended(struct cmn_nccl_state *c, ncclResult_t code)
{
    return cmn_nccl_taken(c, code) || cmn_nccl_finished(c) ? -1 : 0;
}

static int connect_ranks(struct cmn_nccl_state *c)
{
    struct {
        ncclUniqueId id;
        ncclResult_t code;
    } first;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;

    memset(&first, 0, sizeof first);
    if (c->rank == 0) {
        first.code = ncclGetUniqueId(&first.id);
    }
    if (cmn_mpi_check(MPI_Bcast(&first, sizeof first, MPI_BYTE, 0, c->group->comm), "MPI_Bcast")) {
        return cmn_fail_in("nccl: %s: id", c->group->name);
    }
    if (first.code != ncclSuccess) {
        return cmn_nccl_failed(c, first.code);
    }
    config.blocking = 0;
    return cmn_nccl_taken(c, ncclCommInitRankConfig(&c->comm, c->size, first.id, c->rank, &config));
}

static int open_nccl(void **self, const struct cmn_group *group)
{
    struct cmn_nccl_state *c = calloc(1, sizeof *c);
    cudaError_t code;

    if (!c) {
        return cmn_fail("nccl: out of memory");
    }
    *self = c;
    c->group = group;
    c->given = -1;
    snprintf(c->what, sizeof c->what, "start");
    c->begin = cmn_clock();
    MPI_Comm_rank(group->comm, &c->rank);
    MPI_Comm_size(group->comm, &c->size);
    code = cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking);
    if (code == cudaSuccess) {
        code = cudaEventCreateWithFlags(&c->ready, cudaEventDisableTiming);
    }
    if (code == cudaSuccess) {
        code = cudaEventCreateWithFlags(&c->done, cudaEventDisableTiming);
    }
    return code == cudaSuccess ? connect_ranks(c)
                               : cmn_nccl_failed_cuda(c, code, "stream and events");
}

static int allreduce_nccl(void *self, float *data, size_t n)
{
    struct cmn_nccl_state *c = self;

    if (n == 0) {
        return 0;
    }
    if (started(c, "allreduce", n)) {
        return -1;
    }
    return ended(c, ncclAllReduce(data, data, n, ncclFloat32, ncclSum, c->comm, c->stream));
}

/* ncclReduceScatter and ncclAllGather want slices of one length on every rank. Here a reduce to, or a
 * broadcast from, each slice's owner, all in one group: NCCL runs them together. */
static int by_slices(struct cmn_nccl_state *c, const char *what, float *data, size_t n, int slices,
                     int sum)
{
    ncclResult_t code = ncclSuccess, end;

    if (n == 0) {
        return 0;
    }
    if (started(c, what, n)) {
        return -1;
    }
    end = ncclGroupStart();
    for (int i = 0; i < slices && !cmn_nccl_bad(code) && !cmn_nccl_bad(end); i++) {
        size_t at, count;
        cmn_slice(n, slices, i, &at, &count);
        if (count > 0 && sum) {
            code = ncclReduce(data + at, data + at, count, ncclFloat32, ncclSum, i, c->comm,
                              c->stream);
        } else if (count > 0) {
            code = ncclBroadcast(data + at, data + at, count, ncclFloat32, i, c->comm, c->stream);
        }
    }
    if (!cmn_nccl_bad(end)) {
        end = ncclGroupEnd();
    }
    return ended(c, cmn_nccl_bad(code) ? code : end);
}

static int reduce_nccl(void *self, float *data, size_t n)
{
    return by_slices(self, "reduce", data, n, 1, 1);
}

static int bcast_nccl(void *self, float *data, size_t n)
{
    return by_slices(self, "broadcast", data, n, 1, 0);
}

static int reduce_scatter_nccl(void *self, float *data, size_t n, int slices)
{
    return by_slices(self, "reduce_scatter", data, n, slices, 1);
}

static int allgather_nccl(void *self, float *data, size_t n, int slices)
{
    return by_slices(self, "allgather", data, n, slices, 0);
}

static void close_nccl(void *self)
{
    struct cmn_nccl_state *c = self;

    if (!c) {
        return;
    }
    if (c->comm && !c->failed) {
        snprintf(c->what, sizeof c->what, "end");
        c->begin = cmn_clock();
        if (!cmn_nccl_taken(c, ncclCommFinalize(c->comm))) {
            ncclCommDestroy(c->comm);
        }
    }
    cmn_nccl_background_close(c);
    if (c->ready) {
        cudaEventDestroy(c->ready);
    }
    if (c->done) {
        cudaEventDestroy(c->done);
    }
    if (c->stream) {
        cudaStreamDestroy(c->stream);
    }
    free(c);
}

const struct cmn_transport cmn_nccl = {
    .name = "nccl",
    .refuses = refuses_nccl,
    .open = open_nccl,
    .allreduce = allreduce_nccl,
    .reduce = reduce_nccl,
    .reduce_scatter = reduce_scatter_nccl,
    .allgather = allgather_nccl,
    .bcast = bcast_nccl,
    .close = close_nccl,
};

#else

static const char *refuses_nccl(const struct cmn_topology *t, const struct cmn_options *o)
{
    (void)t;
    (void)o;
    return "built without NCCL: make GPU=1 NCCL=1";
}

const struct cmn_transport cmn_nccl = {.name = "nccl", .refuses = refuses_nccl};

#endif
