/* nccl: the GPUs of a group through NCCL, on a stream of their own; at once, or in the background
 * while Darknet computes.
 *
 * Nothing here blocks inside NCCL or CUDA: the communicator is non-blocking, and the end of an
 * operation is an event that is polled together with NCCL's own state. A dead peer, or
 * `cmn_timeout` seconds without an end, abort the communicator and end the job. */
#include "transports/nccl.h"

#include "transports/transport.h"

/* Floats. For most numbers of ranks UNIT is so many lines of 16 floats for each: their slices of a
 * part are equal. */
enum { PARTS = 16, LINE = 16, UNIT = LINE * 1680, PART_AT_LEAST = 10 * UNIT };

size_t cmn_nccl_chunk(size_t n)
{
    size_t even = (n / PARTS + UNIT) / UNIT * UNIT;

    return even > PART_AT_LEAST ? even : PART_AT_LEAST;
}

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

#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/timeline.h"
#include "mpi/call.h"
#include "mpi/device.h"
#include "mpi/kernels.h"

/* Before 2.24 nccl.h names it in C++ alone. */
#if NCCL_VERSION_CODE < 22400
#define BFLOAT16 ((ncclDataType_t)9)
#else
#define BFLOAT16 ncclBfloat16
#endif

enum {
    JOBS = 64,         /* that may wait in the background: three for each part of a block */
    REGIONS = 32,      /* in a group */
    SPINS = 2000,      /* polls before the waiting rank gives its core to others */
    PAUSE_US = 50,     /* between polls then */
    ABORT_AT_MOST = 5, /* seconds that ncclCommAbort may take */
};

/* What is done in the background: a sum; or each of some slices goes to its owner as the sum, or from
 * there to all. */
enum operation { SUM, SCATTER, GATHER };
struct job {
    struct nccl *over; /* whose ranks */
    enum operation operation;
    int slices;                      /* SCATTER, GATHER: equal ones; */
    const struct cmn_region *region; /* or so many of these; NULL: none */
    float *data;
    size_t n; /* floats; 0: no job */
    enum cmn_dtype type;
    float divisor;            /* of 16 bits */
    int number;               /* since the last end */
    cudaEvent_t ready;        /* the floats are this rank's addend */
    cudaEvent_t began, ended; /* with a timeline: on the stream, around the sum */
};

/* Memory of the GPU that NCCL works on. */
struct block {
    void *memory;
    void *handle; /* of NCCL's registration; NULL: there is none */
    int is_ours;  /* to be freed: */
    int by_nccl;  /* by ncclMemFree(), not cudaFree() */
    struct block *next;
};

struct nccl {
    const struct cmn_group *group;
    int rank, size;
    ncclComm_t comm;
    cudaStream_t stream;
    cudaEvent_t ready, done; /* Darknet's work before an operation; the operation */
    int aborted;             /* the communicator is */
    int hung;                /* or it could not be: its kernels may be on the GPU for ever */

    char what[64]; /* the operation that runs */
    double began;  /* when (cmn_clock) */

    struct job job[JOBS]; /* a ring */
    int first, waiting;   /* of the ring: not yet given to NCCL */
    int given;            /* NCCL has not yet taken job[given]; -1: none */
    int base, begun;      /* since the last end: first of the ring, how many */
    cudaEvent_t last;     /* with a timeline: behind them */
    size_t floats;        /* since the last end */
    struct block *block;  /* all that NCCL was told of, or is to be freed at the end */
    void *half;           /* room for half_room numbers of 16 bits on the GPU, one of these */
    size_t half_room;
    struct gather {
        cudaEvent_t ready, done;
    } * gather;                /* since the last wait for them: */
    int gathers, gathers_room; /* so many, and with events */
    struct nccl *partner;      /* its communicator works on this one's stream, too; or NULL */
    struct nccl *next;         /* another one of this process */
};

static struct nccl *opened; /* those with a communicator */

static struct {
    int blocks, refused;
    char why[128]; /* the last of these */
} registrations;

static const char *refuses_nccl(const struct cmn_topology *t, const struct cmn_options *o)
{
    (void)o;
    if (t->device < 0) {
        return "the gradients are in the CPU's memory: nccl connects GPUs";
    }
    return t->shares_gpus ? "NCCL refuses several ranks on one GPU: use non_cuda_aware, or set "
                            "NCCL_MULTI_RANK_GPU_ENABLE=1 where NCCL knows that"
                          : NULL;
}

/* ---- failures ---- */

static void *abort_communicator(void *comm)
{
    ncclCommAbort(comm);
    return NULL;
}

/* Ends what still runs on the GPU. In a thread, because it may wait for a peer that has died; the
 * job ends next in any case. */
static void abort_nccl(struct nccl *c)
{
    struct timespec until;
    pthread_t thread;

    if (c->aborted || !c->comm) {
        return;
    }
    c->aborted = 1;
    if (c->partner) {
        abort_nccl(c->partner);
        c->hung |= c->partner->hung;
    }
    if (pthread_create(&thread, NULL, abort_communicator, c->comm)) {
        c->hung = 1;
        return;
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ABORT_AT_MOST;
    if (pthread_timedjoin_np(thread, NULL, &until)) {
        pthread_detach(thread);
        c->hung = 1;
    }
}

static int is_error(ncclResult_t code)
{
    return code != ncclSuccess && code != ncclInProgress;
}

/* Notes the reason, aborts the communicator, and returns -1. */
static int failed(struct nccl *c, ncclResult_t code)
{
    const char *more = c->comm && !c->aborted ? ncclGetLastError(c->comm) : NULL;

    (code == ncclRemoteError ? cmn_fail_lost : cmn_fail)(
        "nccl: %s: %s on rank %d of %d: %s%s%s", c->group->name, c->what, c->rank, c->size,
        ncclGetErrorString(code), more && *more ? ": " : "", more ? more : "");
    abort_nccl(c);
    return -1;
}

static void check(struct nccl *c, ncclResult_t code)
{
    if (is_error(code)) {
        failed(c, code);
        cmn_fatal_reason();
    }
}

/* As failed(), for a call of CUDA that has left its reason. */
static int failed_reason(struct nccl *c)
{
    cmn_fail_in("nccl: %s: %s on rank %d of %d", c->group->name, c->what, c->rank, c->size);
    abort_nccl(c);
    return -1;
}

static int failed_cuda(struct nccl *c, cudaError_t code, const char *call)
{
    cmn_device_check(code, call);
    return failed_reason(c);
}

static void check_cuda(struct nccl *c, cudaError_t code, const char *call)
{
    if (code != cudaSuccess) {
        failed_cuda(c, code, call);
        cmn_fatal_reason();
    }
}

static _Noreturn void too_late(struct nccl *c)
{
    abort_nccl(c);
    cmn_fatal_lost("nccl: %s: %s: rank %d of %d waited %ld s (cmn_timeout) for the others: "
                   "one may be dead, stuck, or cut off; NCCL_DEBUG=INFO shows what NCCL does",
                   c->group->name, c->what, c->rank, c->size, c->group->options->timeout);
}

/* ---- waiting ---- */

/* NCCL's own state: ncclInProgress until it has taken what it was given, ncclSuccess, or an
 * error. */
static ncclResult_t state_of(struct nccl *c)
{
    ncclResult_t state = ncclSuccess, code = ncclCommGetAsyncError(c->comm, &state);

    code = code != ncclSuccess ? code : state;
    return code == ncclSuccess && c->partner ? state_of(c->partner) : code;
}

/* Between two polls. */
static void pause_after(struct nccl *c, int polls)
{
    if (cmn_status_timed_out(cmn_clock() - c->began, c->group->options->timeout)) {
        too_late(c);
    }
    if (polls > SPINS) {
        usleep(PAUSE_US);
    } else if (polls % 16 == 15) {
        sched_yield();
    }
}

/* Blocking, until NCCL has taken what it was given, which returned `code`: only then that lies on
 * the stream, before what comes next. ncclSuccess, or an error. */
static ncclResult_t await_taken(struct nccl *c, ncclResult_t code)
{
    cmn_status_wait_begin();
    for (int polls = 0; !is_error(code); polls++) {
        code = state_of(c);
        if (code == ncclSuccess) {
            break;
        }
        if (!is_error(code)) {
            pause_after(c, polls);
        }
    }
    cmn_status_wait_end();
    return code;
}

/* Whether the GPU has reached the event. */
static int reached(struct nccl *c, cudaEvent_t event)
{
    int is = cmn_device_reached(event);

    if (is < 0) {
        failed_reason(c);
        cmn_fatal_reason();
    }
    return is;
}

/* Blocking, until all that lies on the stream is done. */
static void await_stream(struct nccl *c)
{
    cmn_status_wait_begin();
    check_cuda(c, cudaEventRecord(c->done, c->stream), "cudaEventRecord");
    for (int polls = 0; !reached(c, c->done); polls++) {
        check(c, state_of(c));
        pause_after(c, polls);
    }
    cmn_status_wait_end();
}

/* ---- the communicator ---- */

/* Names the operation on n floats that begins, and starts the clock of cmn_timeout. */
static void start(struct nccl *c, const char *what, size_t n)
{
    snprintf(c->what, sizeof c->what, "%s of %zu floats", what, n);
    c->began = cmn_clock();
}

static int connect_ranks(struct nccl *c)
{
    struct {
        ncclUniqueId id;
        ncclResult_t code;
    } first;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclResult_t code;

    memset(&first, 0, sizeof first);
    if (c->rank == 0) {
        first.code = ncclGetUniqueId(&first.id);
    }
    MPI_CALL(MPI_Bcast(&first, sizeof first, MPI_BYTE, 0, c->group->comm));
    if (first.code != ncclSuccess) {
        return failed(c, first.code);
    }
    config.blocking = 0;
    code = await_taken(c, ncclCommInitRankConfig(&c->comm, c->size, first.id, c->rank, &config));
    c->next = opened;
    opened = c;
    return is_error(code) ? failed(c, code) : 0;
}

/* What other ranks wait for goes before Darknet's kernels, where both could run. */
static cudaError_t create_stream(cudaStream_t *stream)
{
    int least, greatest;
    cudaError_t code = cudaDeviceGetStreamPriorityRange(&least, &greatest);

    return code != cudaSuccess
               ? code
               : cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, greatest);
}

/* ---- memory that NCCL knows ----
 *
 * From memory of ncclMemAlloc() that was registered NCCL sends, and adds in switches, without a copy of its
 * own. What it does not take serves as any other memory does. */

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
/* An older library may be the one that is found at run time. */
#pragma weak ncclMemAlloc
#pragma weak ncclMemFree
#pragma weak ncclCommRegister
#pragma weak ncclCommDeregister

static int knows_memory(void)
{
    return ncclMemAlloc && ncclMemFree && ncclCommRegister && ncclCommDeregister;
}

static ncclResult_t mem_alloc(void **memory, size_t bytes)
{
    return ncclMemAlloc(memory, bytes);
}

static void mem_free(void *memory)
{
    ncclMemFree(memory);
}

static ncclResult_t comm_register(ncclComm_t comm, void *memory, size_t bytes, void **handle)
{
    return ncclCommRegister(comm, memory, bytes, handle);
}

static void comm_deregister(ncclComm_t comm, void *handle)
{
    ncclCommDeregister(comm, handle);
}
#else
static int knows_memory(void)
{
    return 0;
}

static ncclResult_t mem_alloc(void **memory, size_t bytes)
{
    (void)memory;
    (void)bytes;
    return ncclInvalidUsage;
}

static void mem_free(void *memory)
{
    (void)memory;
}

static ncclResult_t comm_register(ncclComm_t comm, void *memory, size_t bytes, void **handle)
{
    (void)comm;
    (void)memory;
    (void)bytes;
    (void)handle;
    return ncclInvalidUsage;
}

static void comm_deregister(ncclComm_t comm, void *handle)
{
    (void)comm;
    (void)handle;
}
#endif

const char *cmn_nccl_registrations(int *blocks, int *refused)
{
    *blocks = registrations.blocks;
    *refused = registrations.refused;
    return registrations.refused ? registrations.why : NULL;
}

/* Tells NCCL of `bytes` that lie in b. */
static void tell(struct nccl *c, struct block *b, size_t bytes)
{
    ncclResult_t code;

    b->next = c->block;
    c->block = b;
    if (!knows_memory()) {
        return;
    }
    code = comm_register(c->comm, b->memory, bytes, &b->handle);
    registrations.blocks++;
    if (is_error(code)) {
        b->handle = NULL;
        registrations.refused++;
        snprintf(registrations.why, sizeof registrations.why, "%s: %s", c->group->name,
                 ncclGetErrorString(code));
        return;
    }
    check(c, await_taken(c, code));
}

/* Memory for `bytes` that NCCL is told of, or NULL with a reason. */
static struct block *new_block(struct nccl *c, size_t bytes)
{
    struct block *b = cmn_calloc(1, sizeof *b);

    b->is_ours = 1;
    b->by_nccl = knows_memory() && mem_alloc(&b->memory, bytes) == ncclSuccess;
    if (!b->by_nccl) {
        cudaGetLastError(); /* Darknet's next check would take NCCL's for one of its own */
        if (cmn_device_check(cudaMalloc(&b->memory, bytes), "cudaMalloc")) {
            cmn_fail_in("%zu bytes on the GPU", bytes);
            free(b);
            return NULL;
        }
    }
    tell(c, b, bytes);
    return b;
}

/* An aborted communicator knows nothing any more. */
static void forget(struct nccl *c, struct block *b)
{
    if (b->handle && !c->aborted) {
        comm_deregister(c->comm, b->handle);
    }
    b->handle = NULL;
}

static void free_block(struct block *b)
{
    if (b->is_ours && b->by_nccl) {
        mem_free(b->memory);
    } else if (b->is_ours) {
        cudaFree(b->memory);
    }
    free(b);
}

int cmn_nccl_memory(void *self, void *other, size_t floats, float **memory)
{
    struct nccl *c = self;
    size_t bytes = floats * sizeof **memory;
    struct block *b;

    start(c, "memory", floats);
    b = new_block(c, bytes);
    if (!b || cmn_device_check(cudaMemset(b->memory, 0, bytes), "cudaMemset") ||
        cmn_device_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize")) {
        return -1;
    }
    if (other) {
        struct block *known = cmn_calloc(1, sizeof *known);
        known->memory = b->memory;
        start(other, "memory", floats);
        tell(other, known, bytes);
    }
    *memory = b->memory;
    return 0;
}

static int open_nccl(void **self, const struct cmn_group *group)
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
        code = cudaEventCreateWithFlags(&c->ready, cudaEventDisableTiming);
    }
    if (code == cudaSuccess) {
        code = cudaEventCreateWithFlags(&c->done, cudaEventDisableTiming);
    }
    return code == cudaSuccess ? connect_ranks(c) : failed_cuda(c, code, "stream and events");
}

static void destroy(cudaEvent_t event)
{
    if (event) {
        cudaEventDestroy(event);
    }
}

static void close_nccl(void *self)
{
    struct nccl *c = self;

    if (!c) {
        return;
    }
    for (struct nccl **at = &opened; *at; at = &(*at)->next) {
        if (*at == c) {
            *at = c->next;
            break;
        }
    }
    for (struct nccl *other = opened; other; other = other->next) {
        other->partner = other->partner == c ? NULL : other->partner;
    }
    for (struct block *b = c->block; b; b = b->next) {
        forget(c, b);
    }
    if (c->comm && !c->aborted) {
        snprintf(c->what, sizeof c->what, "end");
        c->began = cmn_clock();
        if (await_taken(c, ncclCommFinalize(c->comm)) == ncclSuccess) {
            ncclCommDestroy(c->comm);
        }
    }
    if (c->hung) {
        return; /* cudaFree would wait for its kernels; the process ends */
    }
    while (c->block) {
        struct block *b = c->block;
        c->block = b->next;
        free_block(b);
    }
    for (int i = 0; i < JOBS; i++) {
        destroy(c->job[i].ready);
        destroy(c->job[i].began);
        destroy(c->job[i].ended);
    }
    for (int i = 0; i < c->gathers_room; i++) {
        destroy(c->gather[i].ready);
        destroy(c->gather[i].done);
    }
    free(c->gather);
    destroy(c->last);
    destroy(c->ready);
    destroy(c->done);
    if (c->stream) {
        cudaStreamDestroy(c->stream);
    }
    free(c);
}

/* ---- one operation at once ---- */

/* Operations queued from here on run after all work that Darknet has queued. */
static void begin_operation(struct nccl *c, const char *what, size_t n)
{
    start(c, what, n);
    check_cuda(c, cudaEventRecord(c->ready, cudaStreamLegacy), "cudaEventRecord");
    check_cuda(c, cudaStreamWaitEvent(c->stream, c->ready, 0), "cudaStreamWaitEvent");
}

/* Blocking. Where this rank's GPU has not come to the operation no other rank is waited for. */
static void await_own_gpu(struct nccl *c)
{
    if (reached(c, c->ready)) {
        return;
    }
    cmn_status_own_gpu(1);
    for (int polls = 0; !reached(c, c->ready); polls++) {
        check(c, state_of(c));
        pause_after(c, polls);
    }
    cmn_status_own_gpu(0);
}

/* `code` is the result of the call that queued the operation. */
static void end_operation(struct nccl *c, ncclResult_t code)
{
    check(c, await_taken(c, code));
    await_own_gpu(c);
    await_stream(c);
}

static void allreduce_nccl(void *self, float *data, size_t n)
{
    struct nccl *c = self;

    if (n == 0) {
        return;
    }
    begin_operation(c, "allreduce", n);
    end_operation(c, ncclAllReduce(data, data, n, ncclFloat32, ncclSum, c->comm, c->stream));
}

/* A reduce to, or a broadcast from, the owner of n floats. */
static void queue_region(struct nccl *c, float *data, size_t n, int root, int sum)
{
    if (n > 0 && sum) {
        check(c, ncclReduce(data, data, n, ncclFloat32, ncclSum, root, c->comm, c->stream));
    } else if (n > 0) {
        check(c, ncclBroadcast(data, data, n, ncclFloat32, root, c->comm, c->stream));
    }
}

static ncclResult_t queue_regions(struct nccl *c, float *data, const struct cmn_region *region,
                                  int regions, int sum)
{
    check(c, ncclGroupStart());
    for (int i = 0; i < regions; i++) {
        queue_region(c, data + region[i].at, region[i].n, region[i].root, sum);
    }
    return ncclGroupEnd();
}

static ncclResult_t queue_equal_slices(struct nccl *c, float *data, size_t n, int sum)
{
    size_t each = n / (size_t)c->size;
    float *mine = data + each * (size_t)c->rank;

    return sum ? ncclReduceScatter(data, mine, each, ncclFloat32, ncclSum, c->comm, c->stream)
               : ncclAllGather(mine, data, each, ncclFloat32, c->comm, c->stream);
}

/* NCCL has one call for slices of one length, one for each rank. Else there is a reduce to, or a
 * broadcast from, each slice's owner, all in one group: NCCL runs them together. */
static ncclResult_t queue_slices(struct nccl *c, float *data, size_t n, int slices, int sum)
{
    if (slices > 1 && slices == c->size && n % ((size_t)slices * LINE) == 0) {
        return queue_equal_slices(c, data, n, sum);
    }
    check(c, ncclGroupStart());
    for (int i = 0; i < slices; i++) {
        size_t at, count;
        cmn_slice(n, slices, i, &at, &count);
        queue_region(c, data + at, count, i, sum);
    }
    return ncclGroupEnd();
}

static void by_slices(struct nccl *c, const char *what, float *data, size_t n, int slices, int sum)
{
    if (n == 0) {
        return;
    }
    begin_operation(c, what, n);
    end_operation(c, queue_slices(c, data, n, slices, sum));
}

void cmn_nccl_regions(void *self, float *data, const struct cmn_region *region, int regions,
                      int sum)
{
    struct nccl *c = self;

    for (int first = 0; first < regions; first += REGIONS) {
        int end = first + REGIONS < regions ? first + REGIONS : regions;
        size_t n = 0;
        for (int i = first; i < end; i++) {
            n += region[i].n;
        }
        begin_operation(c, sum ? "reduce" : "broadcast", n);
        end_operation(c, queue_regions(c, data, region + first, end - first, sum));
    }
}

static void reduce_nccl(void *self, float *data, size_t n)
{
    by_slices(self, "reduce", data, n, 1, 1);
}

static void bcast_nccl(void *self, float *data, size_t n)
{
    by_slices(self, "broadcast", data, n, 1, 0);
}

static void reduce_scatter_nccl(void *self, float *data, size_t n, int slices)
{
    by_slices(self, "reduce_scatter", data, n, slices, 1);
}

static void allgather_nccl(void *self, float *data, size_t n, int slices)
{
    by_slices(self, "allgather", data, n, slices, 0);
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

/* ---- sums in the background ----
 *
 * A ring of jobs, each with an event that says when its floats are final. NCCL takes one call at
 * a time, and what must follow it on the stream can be queued only then. Waiting for that could
 * mean waiting for other ranks; so jobs are given to NCCL whenever somebody polls. The calls are
 * the same on all ranks, whenever they are made. */

/* Records on the stream that it has come as far as here. */
static void stamp(struct nccl *c, cudaEvent_t *event)
{
    if (!*event) {
        check_cuda(c, cudaEventCreateWithFlags(event, cudaEventDefault), "cudaEventCreate");
    }
    check_cuda(c, cudaEventRecord(*event, c->stream), "cudaEventRecord");
}

/* The GPU's clock counts from events: `last` is behind all jobs, and was reached about now. */
static void record_spans(struct nccl *c)
{
    double now = cmn_clock();

    for (int i = 0; i < JOBS && cmn_timeline_on; i++) {
        const struct job *job = &c->job[i];
        float since_begin, since_end; /* ms */
        if (!job->n) {
            continue;
        }
        check_cuda(c, cudaEventElapsedTime(&since_begin, job->began, c->last),
                   "cudaEventElapsedTime");
        check_cuda(c, cudaEventElapsedTime(&since_end, job->ended, c->last),
                   "cudaEventElapsedTime");
        cmn_timeline_span(CMN_SPAN_EXCHANGE, job->number, now - 1e-3 * (double)since_begin,
                          now - 1e-3 * (double)since_end);
    }
}

/* Gives the next job to NCCL. */
static void give(struct nccl *c)
{
    struct job *job = &c->job[c->first];
    ncclDataType_t as = job->type == CMN_FP16 ? ncclFloat16 : BFLOAT16;
    ncclResult_t result;

    check_cuda(c, cudaStreamWaitEvent(c->stream, job->ready, 0), "cudaStreamWaitEvent");
    if (cmn_timeline_on) {
        stamp(c, &job->began);
    }
    if (job->region) {
        result = queue_regions(c, job->data, job->region, job->slices, job->operation == SCATTER);
    } else if (job->operation != SUM) {
        result = queue_slices(c, job->data, job->n, job->slices, job->operation == SCATTER);
    } else if (job->type == CMN_FP32) {
        result = ncclAllReduce(job->data, job->data, job->n, ncclFloat32, ncclSum, job->over->comm,
                               c->stream);
    } else {
        check_cuda(c,
                   cmn_kernel_cast_to_16(c->half, job->data, job->n, 1.0f / job->divisor, job->type,
                                         c->stream),
                   "cast to 16 bits");
        result = ncclAllReduce(c->half, c->half, job->n, as, ncclSum, job->over->comm, c->stream);
    }
    c->given = c->first;
    c->first = (c->first + 1) % JOBS;
    c->waiting--;
    check(c, result);
}

/* NCCL has taken the job: queues the casts and the event that follow it. */
static void follow(struct nccl *c)
{
    struct job *job = &c->job[c->given];

    c->given = -1;
    if (job->type != CMN_FP32) {
        check_cuda(
            c,
            cmn_kernel_cast_to_32(job->data, c->half, job->n, job->divisor, job->type, c->stream),
            "cast to 32 bits");
    }
    if (cmn_timeline_on || job->operation == SCATTER) {
        stamp(c, &job->ended);
    }
}

/* Gives NCCL jobs until at most `left` wait; without `wait` only as long as it takes them at
 * once. */
static void advance(struct nccl *c, int wait, int left)
{
    for (;;) {
        ncclResult_t state = wait ? await_taken(c, ncclSuccess) : state_of(c);
        check(c, state);
        if (state == ncclInProgress) {
            return;
        }
        if (c->given >= 0) {
            follow(c);
        }
        if (c->waiting <= left) {
            return;
        }
        give(c);
    }
}

static void drop_half(struct nccl *c)
{
    for (struct block **at = &c->block; *at; at = &(*at)->next) {
        if ((*at)->memory == c->half) {
            struct block *b = *at;
            *at = b->next;
            forget(c, b);
            free_block(b);
            break;
        }
    }
    c->half = NULL;
    c->half_room = 0;
}

/* Jobs follow each other on the stream, so the room for 16 bits of one serves all. */
static void make_room(struct nccl *c, size_t n, enum cmn_dtype type)
{
    struct block *b;

    if (n <= c->half_room) {
        return;
    }
    if (c->half) {
        advance(c, 1, 0);
        await_stream(c);
    }
    drop_half(c);
    b = new_block(c, n * sizeof(short));
    if (!b) {
        failed_reason(c);
        cmn_fatal_reason();
    }
    c->half = b->memory;
    check_cuda(c, cmn_kernel_load_casts(type), "cudaFuncGetAttributes");
    c->half_room = n;
}

/* `job` says what is to be done; all else is filled in here. */
static void begin(struct nccl *c, struct job job)
{
    static const char *const names[] = {"allreduce", "reduce", "broadcast"};
    struct job *mine;

    if (job.n == 0) {
        return;
    }
    start(c, names[job.operation], job.n);
    if (job.type != CMN_FP32) {
        make_room(c, job.n, job.type);
    }
    if (c->waiting == JOBS - 1) {
        advance(c, 1, JOBS - 2);
    }
    mine = &c->job[(c->first + c->waiting) % JOBS];
    job.ready = mine->ready;
    job.began = mine->began;
    job.ended = mine->ended;
    if (!job.ready) {
        check_cuda(c, cudaEventCreateWithFlags(&job.ready, cudaEventDisableTiming),
                   "cudaEventCreate");
    }
    check_cuda(c, cudaEventRecord(job.ready, cudaStreamLegacy), "cudaEventRecord");
    job.divisor = job.divisor > 0 ? job.divisor : (float)job.over->size;
    job.number = c->begun;
    *mine = job;
    c->waiting++;
    c->begun++;
    c->floats += job.n;
    advance(c, 0, 0);
}

void cmn_nccl_begin(void *self, float *data, size_t n, enum cmn_dtype type, float divisor)
{
    cmn_nccl_begin_over(self, self, data, n, type, divisor);
}

void cmn_nccl_begin_over(void *self, void *over, float *data, size_t n, enum cmn_dtype type,
                         float divisor)
{
    struct nccl *c = self;

    c->partner = over == self ? c->partner : over;
    begin(c, (struct job){.over = over, .data = data, .n = n, .type = type, .divisor = divisor});
}

void cmn_nccl_begin_slices(void *self, float *data, size_t n, int slices, int sum)
{
    begin(self, (struct job){.over = self,
                             .operation = sum ? SCATTER : GATHER,
                             .slices = slices,
                             .data = data,
                             .n = n,
                             .type = CMN_FP32});
}

void cmn_nccl_begin_regions(void *self, float *data, const struct cmn_region *region, int regions)
{
    for (int first = 0; first < regions; first += REGIONS) {
        int some = regions - first < REGIONS ? regions - first : REGIONS;
        struct job job = {.over = self,
                          .operation = SCATTER,
                          .slices = some,
                          .region = region + first,
                          .data = data,
                          .type = CMN_FP32};
        for (int i = 0; i < some; i++) {
            job.n += region[first + i].n;
        }
        begin(self, job);
    }
}

int cmn_nccl_jobs(int regions)
{
    return (regions + REGIONS - 1) / REGIONS;
}

void cmn_nccl_room(void *self, size_t n, enum cmn_dtype type)
{
    if (type != CMN_FP32) {
        make_room(self, n, type);
    }
}

int cmn_nccl_orders_stream(void *self, int i, void *stream)
{
    struct nccl *c = self;
    int taken = c->begun - c->waiting - (c->given >= 0);

    if (i >= taken) {
        return 0;
    }
    check_cuda(c, cudaStreamWaitEvent((cudaStream_t)stream, c->job[(c->base + i) % JOBS].ended, 0),
               "cudaStreamWaitEvent");
    return 1;
}

void cmn_nccl_poll(void *self)
{
    struct nccl *c = self;

    if (c->begun) {
        advance(c, 0, 0);
    }
}

void cmn_nccl_order(void *self)
{
    struct nccl *c = self;

    if (c->begun == 0) {
        return;
    }
    start(c, "allreduce", c->floats);
    advance(c, 1, 0);
    check_cuda(c, cudaEventRecord(c->done, c->stream), "cudaEventRecord");
    check_cuda(c, cudaStreamWaitEvent(cudaStreamLegacy, c->done, 0), "cudaStreamWaitEvent");
}

void cmn_nccl_end(void *self)
{
    struct nccl *c = self;

    if (c->begun == 0) {
        return;
    }
    start(c, "allreduce", c->floats);
    advance(c, 1, 0);
    if (cmn_timeline_on) {
        stamp(c, &c->last);
    }
    await_stream(c);
    record_spans(c);
    for (int i = 0; i < JOBS; i++) {
        c->job[i].n = 0;
    }
    c->base = c->first;
    c->begun = 0;
    c->floats = 0;
}

/* ---- gathers, in order with the sums in the background ---- */

static struct gather *next_gather(struct nccl *c)
{
    struct gather *g;

    if (c->gathers == c->gathers_room) {
        c->gather = cmn_realloc(c->gather, (size_t)c->gathers_room + 1, sizeof *c->gather);
        g = &c->gather[c->gathers_room++];
        check_cuda(c, cudaEventCreateWithFlags(&g->ready, cudaEventDisableTiming),
                   "cudaEventCreate");
        check_cuda(c, cudaEventCreateWithFlags(&g->done, cudaEventDisableTiming),
                   "cudaEventCreate");
    }
    return &c->gather[c->gathers++];
}

void cmn_nccl_gather(void *self, float *to, const float *from, size_t n)
{
    struct nccl *c = self;
    struct gather *g;

    for (struct nccl *other = opened; other; other = other->next) {
        if (other->begun) {
            advance(other, 1, 0);
        }
    }
    start(c, "allgather", n);
    g = next_gather(c);
    check_cuda(c, cudaEventRecord(g->ready, cudaStreamLegacy), "cudaEventRecord");
    check_cuda(c, cudaStreamWaitEvent(c->stream, g->ready, 0), "cudaStreamWaitEvent");
    check(c, await_taken(c, ncclAllGather(from, to, n, ncclFloat32, c->comm, c->stream)));
    check_cuda(c, cudaEventRecord(g->done, c->stream), "cudaEventRecord");
    check_cuda(c, cudaStreamWaitEvent(cudaStreamLegacy, g->done, 0), "cudaStreamWaitEvent");
}

static void await_event(struct nccl *c, cudaEvent_t event, void (*idle)(void *self), void *idler)
{
    c->began = cmn_clock();
    for (int polls = 0; !reached(c, event); polls++) {
        check(c, state_of(c));
        if (idle) {
            idle(idler);
        }
        pause_after(c, polls);
    }
}

/* One after the other: a gather that this rank's GPU has not come to waits for no other rank. */
void cmn_nccl_gathered(void *self, void (*idle)(void *self), void *idler)
{
    struct nccl *c = self;

    for (int i = 0; i < c->gathers; i++) {
        await_event(c, c->gather[i].ready, idle, idler);
        cmn_status_wait_begin();
        await_event(c, c->gather[i].done, idle, idler);
        cmn_status_wait_end();
    }
    c->gathers = 0;
}

#else

#include "base/fatal.h"
#include "base/log.h"

static const char without[] = "built without NCCL: make GPU=1 NCCL=1";

static const char *refuses_nccl(const struct cmn_topology *t, const struct cmn_options *o)
{
    (void)t;
    (void)o;
    return without;
}

const struct cmn_transport cmn_nccl = {.name = "nccl", .refuses = refuses_nccl};

void cmn_nccl_begin(void *self, float *data, size_t n, enum cmn_dtype type, float divisor)
{
    (void)divisor;
    (void)self;
    (void)data;
    (void)n;
    (void)type;
    cmn_fatal("%s", without);
}

void cmn_nccl_begin_over(void *self, void *over, float *data, size_t n, enum cmn_dtype type,
                         float divisor)
{
    (void)over;
    cmn_nccl_begin(self, data, n, type, divisor);
}

void cmn_nccl_begin_slices(void *self, float *data, size_t n, int slices, int sum)
{
    (void)slices;
    (void)sum;
    cmn_nccl_begin(self, data, n, CMN_FP32, 0);
}

void cmn_nccl_begin_regions(void *self, float *data, const struct cmn_region *region, int regions)
{
    (void)region;
    (void)regions;
    cmn_nccl_begin(self, data, 0, CMN_FP32, 0);
}

int cmn_nccl_jobs(int regions)
{
    return regions;
}

int cmn_nccl_memory(void *self, void *other, size_t floats, float **memory)
{
    (void)self;
    (void)other;
    (void)floats;
    (void)memory;
    return cmn_fail("%s", without);
}

const char *cmn_nccl_registrations(int *blocks, int *refused)
{
    *blocks = *refused = 0;
    return NULL;
}

void cmn_nccl_room(void *self, size_t n, enum cmn_dtype type)
{
    cmn_nccl_begin(self, NULL, n, type, 0);
}

void cmn_nccl_regions(void *self, float *data, const struct cmn_region *region, int regions,
                      int sum)
{
    (void)self;
    (void)data;
    (void)region;
    (void)regions;
    (void)sum;
    cmn_fatal("%s", without);
}

int cmn_nccl_orders_stream(void *self, int i, void *stream)
{
    (void)self;
    (void)i;
    (void)stream;
    cmn_fatal("%s", without);
}

void cmn_nccl_poll(void *self)
{
    (void)self;
    cmn_fatal("%s", without);
}

void cmn_nccl_order(void *self)
{
    (void)self;
    cmn_fatal("%s", without);
}

void cmn_nccl_end(void *self)
{
    (void)self;
    cmn_fatal("%s", without);
}

void cmn_nccl_gather(void *self, float *to, const float *from, size_t n)
{
    (void)self;
    (void)to;
    (void)from;
    (void)n;
    cmn_fatal("%s", without);
}

void cmn_nccl_gathered(void *self, void (*idle)(void *self), void *idler)
{
    (void)self;
    (void)idle;
    (void)idler;
    cmn_fatal("%s", without);
}

#endif
