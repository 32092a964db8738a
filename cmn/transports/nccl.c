/* NCCL's communicator is a blocking one, whose calls queue an operation on the stream and return.
 * Nothing waits inside NCCL or CUDA except the start and the end of a communicator: the end of an
 * operation is an event that is polled together with NCCL's state. A dead peer, or `cmn_timeout`
 * seconds without an end, abort the communicator and end the job. What waits inside of NCCL is
 * marked as a wait for other ranks, so the watchdog names who does not come. */
#include "transports/nccl.h"

size_t cmn_nccl_chunk(size_t n)
{
    enum { PARTS = 16, UNIT = 16 * 1024, PART_AT_LEAST = 16 * UNIT }; /* floats, but PARTS */
    size_t even = (n / PARTS + UNIT) / UNIT * UNIT;

    return even > PART_AT_LEAST ? even : PART_AT_LEAST;
}

#ifdef CMN_NCCL

#include <nccl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/timeline.h"
#include "mpi/call.h"
#include "mpi/device.h"
#include "mpi/kernels.h"

enum {
    SPINS = 2000,      /* polls before a waiting rank begins to sleep between them */
    PAUSE_US = 50,     /* microseconds of sleep between polls then */
    ABORT_AT_MOST = 5, /* seconds that ncclCommAbort may take */
};

/* Before 2.24, nccl.h defines ncclBfloat16 only for C++. */
#if NCCL_VERSION_CODE < 22400
#define BFLOAT16 ((ncclDataType_t)9)
#else
#define BFLOAT16 ncclBfloat16
#endif

struct operation {
    char what[48]; /* for messages */
    int timed;     /* the timeline shows it: began and done have times */
    /* Events: this rank's part is complete; on the stream, in front of the operation (only where it
     * is timed), and behind it. */
    void *ready, *began, *done;
};

struct nccl {
    const struct cmn_group *group;
    int rank, size;
    ncclComm_t comm;
    const char *what;            /* what it does, for messages */
    struct operation *operation; /* those since the last end, in the order of the stream */
    int operations, room;        /* their number; entries that have events */
    int has_run;                 /* an operation was queued before */
    float *half;                 /* gradients cast to 16 bits, half_room of them */
    size_t half_room;
    int aborted; /* the communicator was aborted */
    int hung;    /* it could not be aborted: its kernels may stay on the GPU for ever */
};

/* The stream of all transports of the process, and how many there are. */
static void *stream;
static int users;

/* ---- failures ---- */

static void *abort_communicator(void *comm)
{
    ncclCommAbort(comm);
    return NULL;
}

/* Aborts the communicator, which ends what still runs on the GPU. The abort runs in a thread,
 * because it may wait for a peer that has died; the job ends next in any case. */
static void abort_nccl(struct nccl *c)
{
    struct timespec until;
    pthread_t thread;

    if (c->aborted || !c->comm) {
        return;
    }
    c->aborted = 1;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ABORT_AT_MOST;
    c->hung = pthread_create(&thread, NULL, abort_communicator, c->comm) ||
              pthread_timedjoin_np(thread, NULL, &until);
}

/* Records a reason, aborts, and returns -1. */
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
    if (code != ncclSuccess && code != ncclInProgress) {
        failed(c, code);
        cmn_fatal_reason();
    }
}

/* Ends the job if `result`, of a function of mpi/device.h, is -1, and aborts before. */
static int need(struct nccl *c, int result)
{
    if (result < 0) {
        cmn_fail_in("nccl: %s: %s on rank %d of %d", c->group->name, c->what, c->rank, c->size);
        abort_nccl(c);
        cmn_fatal_reason();
    }
    return result;
}

/* ---- waiting ---- */

enum whose { OWN_GPU, OTHER_RANKS };

static _Noreturn void too_late(struct nccl *c, enum whose whose)
{
    abort_nccl(c);
    cmn_fatal_lost(whose == OWN_GPU
                       ? "nccl: %s: %s: the GPU of rank %d of %d has not come to it in %ld s "
                         "(cmn_timeout): work of its own does not end there"
                       : "nccl: %s: %s: rank %d of %d waited %ld s (cmn_timeout) for the others: "
                         "one may be dead, stuck, or cut off; NCCL_DEBUG=INFO shows what NCCL does",
                   c->group->name, c->what, c->rank, c->size, c->group->options->timeout);
}

static void await(struct nccl *c, void *event, enum whose whose, void (*idle)(void *self),
                  void *idler)
{
    double since = cmn_clock();

    for (int polls = 0; !need(c, cmn_device_query(event)); polls++) {
        ncclResult_t state = ncclSuccess, code = ncclCommGetAsyncError(c->comm, &state);
        check(c, code != ncclSuccess ? code : state);
        if (idle) {
            idle(idler);
        }
        if (cmn_status_timed_out(cmn_clock() - since, c->group->options->timeout)) {
            too_late(c, whose);
        }
        if (polls > SPINS) {
            usleep(PAUSE_US);
        } else if (polls % 16 == 15) {
            sched_yield();
        }
    }
}

/* Waits for one operation after the other, each in two steps: until this rank's GPU has come to it,
 * the rank does not count as waiting for other ranks. */
static void await_all(struct nccl *c, void (*idle)(void *self), void *idler)
{
    for (const struct operation *o = c->operation; o < c->operation + c->operations; o++) {
        c->what = o->what;
        await(c, o->ready, OWN_GPU, idle, idler);
        cmn_status_wait_begin();
        await(c, o->done, OTHER_RANKS, idle, idler);
        cmn_status_wait_end();
    }
}

/* ---- operations ---- */

/* Appends an operation to the stream, behind the work that Darknet has queued. The caller queues
 * the operation itself, and calls finish(). */
static struct operation *start(struct nccl *c, const char *what, size_t n, int timed)
{
    struct operation *o;

    if (c->operations == c->room) {
        c->operation = cmn_realloc(c->operation, (size_t)c->room + 1, sizeof *c->operation);
        o = &c->operation[c->room++];
        o->ready = NULL;
        o->began = cmn_device_timer();
        o->done = cmn_device_timer();
    }
    o = &c->operation[c->operations++];
    snprintf(o->what, sizeof o->what, "%s of %zu floats", what, n);
    c->what = o->what;
    o->timed = timed;
    cmn_device_record(&o->ready, cmn_device_stream());
    cmn_device_after(stream, o->ready);
    if (timed) {
        cmn_device_record(&o->began, stream);
    }
    if (!c->has_run) {
        cmn_status_wait_begin(); /* NCCL may still have to connect something */
    }
    return o;
}

static void finish(struct nccl *c, struct operation *o)
{
    if (!c->has_run++) {
        cmn_status_wait_end();
    }
    cmn_device_record(&o->done, stream);
}

void cmn_nccl_room(void *self, size_t n, enum cmn_dtype type)
{
    struct nccl *c = self;

    if (type == CMN_FP32 || n <= c->half_room) {
        return;
    }
    await_all(c, NULL, NULL);
    cmn_device_free(c->half);
    c->half_room = n;
    need(c, cmn_device_memory(&c->half, (n + 1) / 2));
}

/* All sums share the room for 16 bits: they follow each other on the stream. */
void cmn_nccl_begin(void *self, float *data, size_t n, enum cmn_dtype type, float divisor)
{
    struct nccl *c = self;
    struct operation *o;

    if (n == 0) {
        return;
    }
    cmn_nccl_room(c, n, type);
    o = start(c, "allreduce", n, cmn_timeline_on);
    if (type == CMN_FP32) {
        check(c, ncclAllReduce(data, data, n, ncclFloat32, ncclSum, c->comm, stream));
    } else {
        divisor = divisor > 0 ? divisor : (float)c->size;
        cmn_kernel_cast_to_16(c->half, data, n, 1.0f / divisor, type, stream);
        check(c, ncclAllReduce(c->half, c->half, n, type == CMN_FP16 ? ncclFloat16 : BFLOAT16,
                               ncclSum, c->comm, stream));
        cmn_kernel_cast_to_32(data, c->half, n, divisor, type, stream);
    }
    finish(c, o);
}

void cmn_nccl_gather(void *self, float *to, const float *from, size_t n)
{
    struct nccl *c = self;
    struct operation *o = start(c, "allgather", n, 0);

    check(c, ncclAllGather(from, to, n, ncclFloat32, c->comm, stream));
    finish(c, o);
    cmn_nccl_order(c);
}

void cmn_nccl_order(void *self)
{
    struct nccl *c = self;

    if (c->operations) {
        cmn_device_after(cmn_device_stream(), c->operation[c->operations - 1].done);
    }
}

/* The GPU measures time only between events. The last one was reached about now, so the times of
 * the operations are counted back from it. */
static void record_spans(struct nccl *c)
{
    const struct operation *last = &c->operation[c->operations - 1];
    double now = cmn_clock();

    for (int i = 0; i < c->operations; i++) {
        const struct operation *o = &c->operation[i];
        cmn_timeline_span(CMN_SPAN_EXCHANGE, i, now - cmn_device_seconds(o->began, last->done),
                          now - cmn_device_seconds(o->done, last->done));
    }
}

void cmn_nccl_end(void *self, void (*idle)(void *self), void *idler)
{
    struct nccl *c = self;

    await_all(c, idle, idler);
    if (c->operations && c->operation[0].timed) {
        record_spans(c);
    }
    c->operations = 0;
}

/* ---- start and end ---- */

const char *cmn_nccl_refuses(const struct cmn_topology *t)
{
    if (t->device < 0) {
        return "the gradients are in the CPU's memory: nccl connects GPUs";
    }
    return t->shares_gpus ? "NCCL refuses several ranks on one GPU: use hierarchical" : NULL;
}

int cmn_nccl_open(void **self, const struct cmn_group *group)
{
    struct nccl *c = *self = cmn_calloc(1, sizeof *c);
    struct {
        ncclUniqueId id;
        ncclResult_t code;
    } first;

    c->group = group;
    c->what = "start";
    MPI_Comm_rank(group->comm, &c->rank);
    MPI_Comm_size(group->comm, &c->size);
    users++;
    stream = stream ? stream : cmn_device_stream_open();
    cmn_kernel_load();
    /* From 2.22 on NCCL connects ranks inside their first operation otherwise. */
    setenv("NCCL_RUNTIME_CONNECT", "0", 0);
    memset(&first, 0, sizeof first);
    if (c->rank == 0) {
        first.code = ncclGetUniqueId(&first.id);
    }
    MPI_CALL(MPI_Bcast(&first, sizeof first, MPI_BYTE, 0, group->comm));
    if (first.code == ncclSuccess) {
        cmn_status_wait_begin();
        first.code = ncclCommInitRank(&c->comm, c->size, first.id, c->rank);
        cmn_status_wait_end();
    }
    return first.code != ncclSuccess ? failed(c, first.code) : 0;
}

void cmn_nccl_close(void *self)
{
    struct nccl *c = self;

    if (!c) {
        return;
    }
    if (c->comm && !c->aborted) {
        cmn_status_wait_begin();
        ncclCommDestroy(c->comm);
        cmn_status_wait_end();
    }
    users--;
    if (c->hung) {
        stream = NULL; /* and nothing is freed: cudaFree() would wait for its kernels for ever */
        return;
    }
    cmn_device_free(c->half);
    for (int i = 0; i < c->room; i++) {
        cmn_device_event_close(c->operation[i].ready);
        cmn_device_event_close(c->operation[i].began);
        cmn_device_event_close(c->operation[i].done);
    }
    if (!users) {
        cmn_device_stream_close(stream);
        stream = NULL;
    }
    free(c->operation);
    free(c);
}

#else

const char *cmn_nccl_refuses(const struct cmn_topology *t)
{
    (void)t;
    return "built without NCCL: make GPU=1 NCCL=1";
}

#endif
