/* nccl: the GPUs of a group through NCCL, on a stream of their own.
 *
 * Nothing here blocks inside NCCL or CUDA: the communicator is non-blocking, and the end of an
 * operation is an event that is asked after, together with NCCL's own state. A dead peer or `cmn_timeout`
 * seconds without an end abort the communicator and end in a reason. */
#include "transports/nccl.h"
#include "transports/transport.h"

#ifdef CMN_NCCL
#include <cuda_runtime.h>
#include <nccl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "device.h"
#include "kernels.h"
#include "log.h"

enum {
    SPINS = 2000,      /* questions before the waiting rank gives its core to others */
    PAUSE_US = 50,     /* between questions then */
    ABORT_AT_MOST = 5, /* seconds that ncclCommAbort may take */
};

struct nccl {
    const struct cmn_group *group;
    int rank, size;
    ncclComm_t comm;
    cudaStream_t stream;
    cudaEvent_t ready, done; /* Darknet's work before an operation; the operation */
    void *half;              /* room for half_room numbers of 16 bits on the GPU */
    size_t half_room;
    int failed; /* the communicator is aborted */

    char what[64]; /* the operation that runs, and when it began */
    double begin;
};

static const char *refuses_nccl(const struct cmn_topology *t, const struct cmn_options *o)
{
    (void)o;
    return t->device < 0 ? "the gradients are in the CPU's memory: nccl connects GPUs" : NULL;
}

static void *abort_communicator(void *comm)
{
    ncclCommAbort(comm);
    return NULL;
}

/* Ends what still runs on the GPU. In a thread, because it may wait for a peer that is no more; the
 * job ends next in any case. Returns -1. */
static int give_up(struct nccl *c)
{
    struct timespec until;
    pthread_t thread;

    if (c->failed || !c->comm) {
        return -1;
    }
    c->failed = 1;
    if (pthread_create(&thread, NULL, abort_communicator, c->comm)) {
        return -1;
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ABORT_AT_MOST;
    if (pthread_timedjoin_np(thread, NULL, &until)) {
        pthread_detach(thread);
    }
    return -1;
}

static int failed(struct nccl *c, ncclResult_t code)
{
    const char *more = c->comm && !c->failed ? ncclGetLastError(c->comm) : NULL;

    cmn_fail("nccl: %s: %s on rank %d of %d: %s%s%s", c->group->name, c->what, c->rank, c->size,
             ncclGetErrorString(code), more && *more ? ": " : "", more ? more : "");
    return give_up(c);
}

static int failed_cuda(struct nccl *c, int code, const char *call)
{
    cmn_device_check(code, call);
    cmn_fail_in("nccl: %s: %s on rank %d of %d", c->group->name, c->what, c->rank, c->size);
    return give_up(c);
}

static int too_late(struct nccl *c)
{
    cmn_fail("nccl: %s: %s: rank %d of %d waited %ld s (cmn_timeout) for the others: "
             "one may be dead, stuck, or cut off; NCCL_DEBUG=INFO shows what NCCL does",
             c->group->name, c->what, c->rank, c->size, c->group->options->timeout);
    return give_up(c);
}

static int bad(ncclResult_t code)
{
    return code != ncclSuccess && code != ncclInProgress;
}

/* Asks after NCCL's own state, and lets others have the core for a while. 0, or -1 when there is no hope. */
static int ask(struct nccl *c, int questions, ncclResult_t *state)
{
    ncclResult_t code = ncclCommGetAsyncError(c->comm, state);

    if (code != ncclSuccess || bad(*state)) {
        return failed(c, code != ncclSuccess ? code : *state);
    }
    if (cmn_clock() - c->begin > (double)c->group->options->timeout) {
        return too_late(c);
    }
    if (questions > SPINS) {
        usleep(PAUSE_US);
    } else if (questions % 16 == 15) {
        sched_yield();
    }
    return 0;
}

/* Until NCCL has taken what it was given: only then that lies on the stream, before what comes next. */
static int taken(struct nccl *c, ncclResult_t code)
{
    ncclResult_t state = ncclInProgress;

    if (bad(code)) {
        return failed(c, code);
    }
    for (int i = 0; state == ncclInProgress; i++) {
        if (ask(c, i, &state)) {
            return -1;
        }
    }
    return 0;
}

/* Until all that lies on the stream is done. */
static int finished(struct nccl *c)
{
    cudaError_t code = cudaEventRecord(c->done, c->stream);
    ncclResult_t state;

    if (code != cudaSuccess) {
        return failed_cuda(c, code, "cudaEventRecord");
    }
    for (int i = 0; (code = cudaEventQuery(c->done)) != cudaSuccess; i++) {
        if (code != cudaErrorNotReady) {
            return failed_cuda(c, code, "cudaEventQuery");
        }
        if (ask(c, i, &state)) {
            return -1;
        }
    }
    return 0;
}

/* What is queued from here on comes after all that Darknet has asked of the GPU. */
static int started(struct nccl *c, const char *what, size_t n)
{
    cudaError_t code;

    snprintf(c->what, sizeof c->what, "%s of %zu floats", what, n);
    c->begin = cmn_clock();
    if (c->failed) {
        return cmn_fail("nccl: %s: %s: the communicator was given up before", c->group->name,
                        c->what);
    }
    code = cudaEventRecord(c->ready, cudaStreamLegacy);
    if (code == cudaSuccess) {
        code = cudaStreamWaitEvent(c->stream, c->ready, 0);
    }
    return code == cudaSuccess ? 0 : failed_cuda(c, code, "cudaStreamWaitEvent");
}

/* `code` is what the call that queued the operation has returned. */
static int ended(struct nccl *c, ncclResult_t code)
{
    return taken(c, code) || finished(c) ? -1 : 0;
}

static int connect_ranks(struct nccl *c)
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
        return failed(c, first.code);
    }
    config.blocking = 0;
    return taken(c, ncclCommInitRankConfig(&c->comm, c->size, first.id, c->rank, &config));
}

static int open_nccl(void **self, const struct cmn_group *group)
{
    struct nccl *c = calloc(1, sizeof *c);
    cudaError_t code;

    if (!c) {
        return cmn_fail("nccl: out of memory");
    }
    *self = c;
    c->group = group;
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
    return code == cudaSuccess ? connect_ranks(c) : failed_cuda(c, code, "stream and events");
}

static int allreduce_nccl(void *self, float *data, size_t n)
{
    struct nccl *c = self;

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
static int by_slices(struct nccl *c, const char *what, float *data, size_t n, int slices, int sum)
{
    ncclResult_t code = ncclSuccess, end;

    if (n == 0) {
        return 0;
    }
    if (started(c, what, n)) {
        return -1;
    }
    end = ncclGroupStart();
    for (int i = 0; i < slices && !bad(code) && !bad(end); i++) {
        size_t at, count;
        cmn_slice(n, slices, i, &at, &count);
        if (count > 0 && sum) {
            code = ncclReduce(data + at, data + at, count, ncclFloat32, ncclSum, i, c->comm,
                              c->stream);
        } else if (count > 0) {
            code = ncclBroadcast(data + at, data + at, count, ncclFloat32, i, c->comm, c->stream);
        }
    }
    if (!bad(end)) {
        end = ncclGroupEnd();
    }
    return ended(c, bad(code) ? code : end);
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

static int make_room(struct nccl *c, size_t n)
{
    cudaError_t code;

    if (n <= c->half_room) {
        return 0;
    }
    cudaFree(c->half);
    c->half = NULL;
    c->half_room = 0;
    code = cudaMalloc(&c->half, n * sizeof(short));
    if (code != cudaSuccess) {
        return failed_cuda(c, code, "cudaMalloc");
    }
    c->half_room = n;
    return 0;
}

int cmn_nccl_allreduce_as(void *self, float *data, size_t n, enum cmn_dtype type)
{
    struct nccl *c = self;
    enum cmn_half half = type == CMN_FP16 ? CMN_HALF_FP16 : CMN_HALF_BF16;
    ncclDataType_t as = type == CMN_FP16 ? ncclFloat16 : ncclBfloat16;
    int code;

    if (type == CMN_FP32 || n == 0) {
        return allreduce_nccl(self, data, n);
    }
    if (started(c, "allreduce", n) || make_room(c, n)) {
        return -1;
    }
    code = cmn_kernel_narrow(c->half, data, n, 1.0f / (float)c->size, half, c->stream);
    if (code) {
        return failed_cuda(c, code, "cast to 16 bits");
    }
    if (taken(c, ncclAllReduce(c->half, c->half, n, as, ncclSum, c->comm, c->stream))) {
        return -1;
    }
    code = cmn_kernel_widen(data, c->half, n, (float)c->size, half, c->stream);
    return code ? failed_cuda(c, code, "cast from 16 bits") : finished(c);
}

static void close_nccl(void *self)
{
    struct nccl *c = self;

    if (!c) {
        return;
    }
    if (c->comm && !c->failed) {
        snprintf(c->what, sizeof c->what, "end");
        c->begin = cmn_clock();
        if (!taken(c, ncclCommFinalize(c->comm))) {
            ncclCommDestroy(c->comm);
        }
    }
    cudaFree(c->half);
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

#include "log.h"

static const char *refuses_nccl(const struct cmn_topology *t, const struct cmn_options *o)
{
    (void)t;
    (void)o;
    return "built without NCCL: make GPU=1 NCCL=1";
}

int cmn_nccl_allreduce_as(void *self, float *data, size_t n, enum cmn_dtype type)
{
    (void)self;
    (void)data;
    (void)n;
    (void)type;
    return cmn_fail("built without NCCL: make GPU=1 NCCL=1");
}

const struct cmn_transport cmn_nccl = {.name = "nccl", .refuses = refuses_nccl};

#endif
