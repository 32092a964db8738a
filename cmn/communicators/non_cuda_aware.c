/* non_cuda_aware: as hierarchical, with the part between the nodes in the CPU's memory, for an MPI that
 * cannot be given the GPU's.
 *
 * Steps: the block is cut into parts as by pure_nccl, the metrics in the last. Of each part: NCCL reduce to the
 * node's first rank; there a copy to page-locked memory, a sum among the nodes' first ranks by messages
 * (transports/pairwise.h), a copy back. At the end, one NCCL broadcast of everything within the node. While one
 * part is copied another travels; and when exchanges overlap, all of it begins while backward still makes the rest.
 * Without NCCL, or with cmn_intra=mpi, every rank copies, and the messages go between all ranks.
 * Bytes, block of n floats, M nodes: over a node's link each way 2(M-1)/M * 4n; between a GPU and its host 4n
 * each way. Without NCCL those of flat.
 * Source: ChainerMN's communicator of the same name (Akiba, Fukuda, Suzuki, "ChainerMN: Scalable
 * Distributed Deep Learning Framework", 2017); the parts are ours. */
#include "communicators/communicator.h"

#include "base/log.h"
#include "transports/transport.h"

#ifdef GPU

#include <cuda_runtime.h>
#include <sched.h>
#include <stdlib.h>

#include "mpi/device.h"
#include "base/timeline.h"
#include "transports/nccl.h"
#include "transports/pairwise.h"

enum { PARTS = 17 }; /* cmn_nccl_part() makes 16 at most */

/* One goes through these in order, and the parts through each of them in order. */
struct part {
    float *data, *host;
    size_t n;
    double sent;               /* when it went to others */
    cudaEvent_t ready, copied; /* this rank's floats are final; they are in the host's memory */
};

struct non_cuda_aware {
    struct cmn_group intra;
    MPI_Comm outer; /* the ranks that copy */
    int outer_size;
    void *within;                 /* transport nccl; NULL where there is none */
    struct cmn_pairwise *between; /* NULL on ranks that do not copy */
    cudaStream_t stream;          /* of the copies */
    cudaEvent_t returned;
    float *host; /* page-locked room for block and metrics */
    size_t room;

    struct part part[PARTS];
    int begun, out, sent,
        back;      /* parts in this step: begun, on their way to the host, to others, and back */
    long before;   /* jobs of `between` that ended in earlier steps */
    size_t floats; /* of the block, begun in this step */
};

static const char *refuses_non_cuda_aware(const struct cmn_topology *t, const struct cmn_options *o)
{
    (void)o;
    return t->device < 0 ? "the gradients are in the CPU's memory: use shm, hierarchical or flat"
                         : NULL;
}

static int open_copies(struct non_cuda_aware *s)
{
    int code = cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking);

    if (!code) {
        code = cudaEventCreateWithFlags(&s->returned, cudaEventDisableTiming);
    }
    for (int i = 0; i < PARTS && !code; i++) {
        code = cudaEventCreateWithFlags(&s->part[i].ready, cudaEventDisableTiming);
        if (!code) {
            code = cudaEventCreateWithFlags(&s->part[i].copied, cudaEventDisableTiming);
        }
    }
    return cmn_device_check(code, "stream and events");
}

static int open_non_cuda_aware(void **self, const struct cmn_topology *t,
                               const struct cmn_options *o)
{
    struct non_cuda_aware *s = calloc(1, sizeof *s);
    int by_nccl = o->intra != CMN_INTRA_MPI && !cmn_nccl.refuses(t, o);

    if (!s) {
        return cmn_fail("out of memory");
    }
    *self = s;
    s->intra = (struct cmn_group){t->intra, "intra", t, o, 0};
    s->outer = by_nccl ? t->inter : t->world;
    s->outer_size = by_nccl ? t->inter_size : t->size;
    if (by_nccl && t->intra_size > 1 && cmn_nccl.open(&s->within, &s->intra)) {
        return -1;
    }
    if (s->outer_size == 1 || (by_nccl && t->intra_rank > 0)) {
        return 0;
    }
    if (cmn_pairwise_open(&s->between, s->outer, 0)) {
        return -1;
    }
    cmn_pairwise_patience(s->between, o->timeout);
    return open_copies(s);
}

/* Room for so many floats; nothing is under way. */
static int make_room(struct non_cuda_aware *s, size_t floats)
{
    if (!s->between || floats <= s->room) {
        return 0;
    }
    cudaFreeHost(s->host);
    s->host = NULL;
    s->room = 0;
    if (cmn_device_check(
            cudaHostAlloc((void **)&s->host, floats * sizeof *s->host, cudaHostAllocDefault),
            "cudaHostAlloc")) {
        return cmn_fail_in("%zu floats of page-locked memory", floats);
    }
    s->room = floats;
    return 0;
}

static int begin_part(struct non_cuda_aware *s, const struct cmn_exchange *x, size_t n)
{
    struct part *p = &s->part[s->begun];

    if (n == 0 || (s->begun == 0 && make_room(s, x->block.n + x->metrics.n))) {
        return n == 0 ? 0 : -1;
    }
    p->data = x->block.data + s->floats;
    p->host = s->host + s->floats;
    p->n = n;
    s->begun++;
    s->floats += n;
    if (s->within) {
        return cmn_nccl_begin_reduce(s->within, p->data, n);
    }
    return s->between
               ? cmn_device_check(cudaEventRecord(p->ready, cudaStreamLegacy), "cudaEventRecord")
               : 0;
}

/* The copies' stream waits until part i is final: 1, or 0 when that cannot be said yet, or -1. */
static int ordered(struct non_cuda_aware *s, int i)
{
    if (s->within) {
        return cmn_nccl_orders_stream(s->within, i, s->stream);
    }
    return cmn_device_check(cudaStreamWaitEvent(s->stream, s->part[i].ready, 0),
                            "cudaStreamWaitEvent")
               ? -1
               : 1;
}

/* Queues the copy of a part to the host. */
static int copy_out(struct non_cuda_aware *s, const struct part *p)
{
    int code = cudaMemcpyAsync(p->host, p->data, p->n * sizeof *p->data, cudaMemcpyDeviceToHost,
                               s->stream);

    if (!code) {
        code = cudaEventRecord(p->copied, s->stream);
    }
    return cmn_device_check(code, "cudaMemcpyAsync");
}

static int copy_back(struct non_cuda_aware *s, const struct part *p)
{
    return cmn_device_check(cudaMemcpyAsync(p->data, p->host, p->n * sizeof *p->data,
                                            cudaMemcpyHostToDevice, s->stream),
                            "cudaMemcpyAsync");
}

/* 1, 0 when it is not reached yet, or -1. */
static int reached(cudaEvent_t event)
{
    cudaError_t code = cudaEventQuery(event);

    if (code == cudaErrorNotReady) {
        return 0;
    }
    return cmn_device_check(code, "cudaEventQuery") ? -1 : 1;
}

/* To the other ranks that copy. */
static int send(struct non_cuda_aware *s, struct part *p)
{
    struct cmn_pairwise_job job = {.data = p->host,
                                   .n = p->n,
                                   .slices = s->outer_size,
                                   .what = CMN_SCATTER | CMN_GATHER,
                                   .dtype = CMN_FP32};

    p->sent = cmn_clock();
    return cmn_pairwise_begin(s->between, &job);
}

/* Moves each part on as far as it can go. */
static int poll_non_cuda_aware(void *self)
{
    struct non_cuda_aware *s = self;
    int can = 1;
    long summed;

    if (s->within && cmn_nccl_poll(s->within)) {
        return -1;
    }
    if (!s->between) {
        return 0;
    }
    while (s->out < s->begun && (can = ordered(s, s->out)) == 1) {
        if (copy_out(s, &s->part[s->out++])) {
            return -1;
        }
    }
    while (can >= 0 && s->sent < s->out && (can = reached(s->part[s->sent].copied)) == 1) {
        if (send(s, &s->part[s->sent++])) {
            return -1;
        }
    }
    summed = can < 0 ? -1 : cmn_pairwise_progress(s->between, 0);
    while (summed >= 0 && s->back < summed - s->before) {
        cmn_timeline_span(CMN_SPAN_EXCHANGE, s->back, s->part[s->back].sent, cmn_clock());
        if (copy_back(s, &s->part[s->back++])) {
            return -1;
        }
    }
    return summed < 0 ? -1 : 0;
}

/* Whole parts, but for the last: that waits for the metrics. */
static int begin_non_cuda_aware(void *self, const struct cmn_exchange *x, size_t upto)
{
    struct non_cuda_aware *s = self;
    size_t each = cmn_nccl_part(x->block.n);

    while (s->floats + each <= upto && s->floats + each < x->block.n) {
        if (begin_part(s, x, each)) {
            return -1;
        }
    }
    return poll_non_cuda_aware(s);
}

static int too_late(const struct non_cuda_aware *s, double since)
{
    long timeout = s->intra.options->timeout;

    sched_yield();
    return cmn_clock() - since > (double)timeout
               ? cmn_fail("a copy between GPU and CPU did not end in %ld s (cmn_timeout)", timeout)
               : 0;
}

/* Until all parts are back. Other ranks are waited for in pairwise and nccl; here it is the GPU alone. */
static int wait_for_copies(struct non_cuda_aware *s)
{
    double since = cmn_clock();
    int can;

    while (s->sent < s->begun) {
        int before = s->out + s->sent + s->back;
        if (poll_non_cuda_aware(s)) {
            return -1;
        }
        since = s->out + s->sent + s->back > before ? cmn_clock() : since;
        if (too_late(s, since)) {
            return -1;
        }
    }
    while (s->back < s->begun) {
        if (cmn_pairwise_progress(s->between, s->before + s->back + 1) < 0 ||
            poll_non_cuda_aware(s)) {
            return -1;
        }
    }
    s->before += s->begun;
    since = cmn_clock();
    if (cmn_device_check(cudaEventRecord(s->returned, s->stream), "cudaEventRecord")) {
        return -1;
    }
    while ((can = reached(s->returned)) == 0) {
        if (too_late(s, since)) {
            return -1;
        }
    }
    return can < 0 ? -1 : 0;
}

static int allreduce_non_cuda_aware(void *self, const struct cmn_exchange *x)
{
    struct non_cuda_aware *s = self;
    size_t n = x->block.n + x->metrics.n;

    if (begin_non_cuda_aware(s, x, x->block.n) || begin_part(s, x, n - s->floats) ||
        (s->between && wait_for_copies(s)) || (s->within && cmn_nccl_end(s->within))) {
        return -1;
    }
    s->begun = s->out = s->sent = s->back = 0;
    s->floats = 0;
    return s->within ? cmn_nccl.bcast(s->within, x->block.data, n) : 0;
}

static void forget(cudaEvent_t event)
{
    if (event) {
        cudaEventDestroy(event);
    }
}

static void close_non_cuda_aware(void *self)
{
    struct non_cuda_aware *s = self;

    if (s->within) {
        cmn_nccl.close(s->within);
    }
    cmn_pairwise_close(s->between);
    cudaFreeHost(s->host);
    for (int i = 0; i < PARTS; i++) {
        forget(s->part[i].ready);
        forget(s->part[i].copied);
    }
    forget(s->returned);
    if (s->stream) {
        cudaStreamDestroy(s->stream);
    }
    free(s);
}

#else

static const char *refuses_non_cuda_aware(const struct cmn_topology *t, const struct cmn_options *o)
{
    (void)t;
    (void)o;
    return "built without CUDA: make GPU=1";
}

static int open_non_cuda_aware(void **self, const struct cmn_topology *t,
                               const struct cmn_options *o)
{
    *self = NULL;
    return cmn_fail("%s", refuses_non_cuda_aware(t, o));
}

static int allreduce_non_cuda_aware(void *self, const struct cmn_exchange *x)
{
    (void)self;
    (void)x;
    return cmn_fail("built without CUDA: make GPU=1");
}

static int begin_non_cuda_aware(void *self, const struct cmn_exchange *x, size_t upto)
{
    (void)upto;
    return allreduce_non_cuda_aware(self, x);
}

static int poll_non_cuda_aware(void *self)
{
    return allreduce_non_cuda_aware(self, NULL);
}

static void close_non_cuda_aware(void *self)
{
    (void)self;
}

#endif

const struct cmn_communicator cmn_communicator_non_cuda_aware = {
    .name = "non_cuda_aware",
    .cpu = "no",
    .gpu = "yes (untried)",
    .use = "GPUs on several nodes whose MPI is not CUDA-aware, or without NCCL",
    .sums = 1,
    .refuses = refuses_non_cuda_aware,
    .open = open_non_cuda_aware,
    .allreduce = allreduce_non_cuda_aware,
    .begin = begin_non_cuda_aware,
    .poll = poll_non_cuda_aware,
    .close = close_non_cuda_aware,
};
