/* non_cuda_aware: as hierarchical, with the exchange between the nodes in the CPU's memory, for
 * an MPI that cannot read the GPU's.
 *
 * Steps: the block is cut into parts as by pure_nccl, the metrics in the last. Of each part: NCCL
 * reduce to the node's first rank; there a copy to page-locked memory, a sum among the nodes'
 * first ranks by messages (transports/sums.h), a copy back. At the end, one NCCL broadcast of
 * everything within the node. While one part is copied another travels; and when exchanges
 * overlap, all of it begins while backward still makes the rest. Without NCCL, or with
 * CMN_DEBUG_INTRA=mpi, every rank copies, and the messages go between all ranks. With
 * cmn_compress=fp16 or bf16 the messages have 16 bits, as those of pure_nccl. With
 * cmn_compress=powersgd: compressed_allreduce.h, over the ranks that copy.
 * Bytes, block of n floats, M nodes: over a node's link each way 2(M-1)/M * 4n, half of that with 16
 * bits; between a GPU and
 * its host 4n each way. Without NCCL those of flat.
 * Source: ChainerMN's communicator of the same name (Akiba, Fukuda, Suzuki, "ChainerMN: Scalable
 * Distributed Deep Learning Framework", 2017); the parts are ours. */
#include "communicators/communicator.h"

#include "base/fatal.h"
#include "communicators/node_groups.h"
#include "compression/compressor.h"

#ifdef GPU

#include <cuda_runtime.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/timeline.h"
#include "mpi/device.h"
#include "mpi/kernels.h"
#include "transports/nccl.h"
#include "transports/sums.h"

enum { PARTS = 17 }; /* cmn_nccl_chunk() makes 16 at most */

/* A part goes through these states in order, and the parts go through each of them in order. */
struct part {
    float *data, *host;
    size_t n;                  /* floats */
    enum cmn_dtype type;       /* that travels */
    float divisor;             /* with 16 bits */
    double sent;               /* seconds (cmn_clock): when it went to other ranks */
    cudaEvent_t ready, copied; /* this rank's floats are final; they are in the host's memory */
};

struct non_cuda_aware {
    struct cmn_group intra;
    struct cmn_compressed *compressed; /* a compressor does all of it; NULL: none */
    struct cmn_topology alone;         /* for it: each rank a node of its own */
    MPI_Comm outer;                    /* the ranks that copy */
    int outer_size;
    void *within;             /* transport nccl; NULL where there is none */
    struct cmn_sums *between; /* NULL on ranks that do not copy */
    cudaStream_t stream;      /* of the copies */
    cudaEvent_t returned;
    float *host; /* page-locked room for block and metrics */
    size_t room; /* floats of it */

    struct part part[PARTS];
    /* Parts in this step: begun, on their way to the host, to other ranks, and back. */
    int begun, out, sent, back;
    long before; /* jobs of `between` that ended in earlier steps */
    struct cmn_parts parts;
};

/* Whether NCCL sums within a node. */
static int by_nccl(const struct cmn_topology *t, const struct cmn_options *o)
{
    return o->intra != CMN_INTRA_MPI && !cmn_nccl_refuses(t, o);
}

static const char *refuses_non_cuda_aware(const struct cmn_topology *t, const struct cmn_options *o)
{
    if (t->device < 0) {
        return "the gradients are in the CPU's memory: use shm, hierarchical or flat";
    }
    if (o->compress == CMN_COMPRESS_POWERSGD && t->inter_size == 1 && by_nccl(t, o)) {
        return "all ranks are on one node, and nothing is sent that a compressor could make "
               "smaller: leave it away, or use flat, which sends all the same";
    }
    return cmn_wire_type(o) != CMN_FP32 && t->inter_size == 1 && by_nccl(t, o)
               ? "all ranks are on one node, and what is sent between nodes alone has 16 bits: use "
                 "pure_nccl or single_node"
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
    if (!code) {
        code = cmn_kernel_load_scale(); /* else with its first launch, behind a sum */
    }
    return cmn_device_check(code, "stream and events");
}

static int open_non_cuda_aware(void **self, const struct cmn_topology *t,
                               const struct cmn_options *o)
{
    struct non_cuda_aware *s = cmn_calloc(1, sizeof *s);
    int sums_within = by_nccl(t, o);

    *self = s;
    s->intra = (struct cmn_group){t->intra, "intra", t, o};
    s->outer = sums_within ? t->inter : t->world;
    s->outer_size = sums_within ? t->inter_size : t->size;
    if (sums_within && t->intra_size > 1 && cmn_nccl_open(&s->within, &s->intra)) {
        return -1;
    }
    if (cmn_compressed_wanted(t, o)) {
        s->alone = cmn_node_groups_alone(t);
        s->compressed = cmn_compressed_open(sums_within ? t : &s->alone, o, 1, s->within);
        return 0;
    }
    if (s->outer_size == 1 || (sums_within && t->intra_rank > 0)) {
        return 0;
    }
    s->between = cmn_sums_open(s->outer, o, 0);
    return open_copies(s);
}

static int memory_non_cuda_aware(void *self, size_t floats, float **memory)
{
    const struct non_cuda_aware *s = self;

    *memory = NULL;
    return s->within ? cmn_nccl_memory(s->within, NULL, floats, memory) : 0;
}

static void check(int code, const char *call)
{
    if (cmn_device_check(code, call)) {
        cmn_fatal_reason();
    }
}

/* Room for so many floats; nothing is in flight. */
static void make_room(struct non_cuda_aware *s, size_t floats)
{
    if (!s->between || floats <= s->room) {
        return;
    }
    cudaFreeHost(s->host);
    s->host = NULL;
    s->room = 0;
    check(cudaHostAlloc((void **)&s->host, floats * sizeof *s->host, cudaHostAllocDefault),
          "page-locked memory for the gradients: cudaHostAlloc");
    s->room = floats;
}

static void begin_part(void *self, const struct cmn_exchange *x, float *data, size_t n,
                       enum cmn_dtype type)
{
    struct non_cuda_aware *s = self;
    struct part *p = &s->part[s->begun];

    if (n == 0) {
        return;
    }
    if (s->begun == 0) {
        make_room(s, x->block.n + x->metrics.n);
    }
    p->data = data;
    p->host = s->host + (data - x->block.data);
    p->n = n;
    p->type = type;
    p->divisor = x->images > 0 ? x->images : (float)s->intra.topology->size;
    s->begun++;
    if (s->within) {
        cmn_nccl_begin_slices(s->within, p->data, n, 1, 1);
    } else if (s->between) {
        check(cudaEventRecord(p->ready, cudaStreamLegacy), "cudaEventRecord");
    }
}

/* Makes the copies' stream wait until part i is final. 1, or 0 when NCCL has not queued its sum
 * yet. */
static int ordered(struct non_cuda_aware *s, int i)
{
    if (s->within) {
        return cmn_nccl_orders_stream(s->within, i, s->stream);
    }
    check(cudaStreamWaitEvent(s->stream, s->part[i].ready, 0), "cudaStreamWaitEvent");
    return 1;
}

/* With 16 bits the mean over the images travels, as by pure_nccl. */
static void scale(struct non_cuda_aware *s, const struct part *p, float by)
{
    if (p->type != CMN_FP32) {
        check(cmn_kernel_scale(p->data, by, p->n, s->stream), "a kernel");
    }
}

/* Queues the copy of a part to the host. */
static void copy_out(struct non_cuda_aware *s, const struct part *p)
{
    scale(s, p, 1 / p->divisor);
    check(cudaMemcpyAsync(p->host, p->data, p->n * sizeof *p->data, cudaMemcpyDeviceToHost,
                          s->stream),
          "cudaMemcpyAsync");
    check(cudaEventRecord(p->copied, s->stream), "cudaEventRecord");
}

/* Casts to fp16 bound what does not fit (base/float16.h). Here nobody keeps what they cut off, so it
 * becomes infinite instead, as by NCCL: an addend that is larger than the largest number, or a sum
 * that is as large. */
static void show_overflow(const struct part *p, int is_sum)
{
    const float largest = 65504, most = is_sum ? nextafterf(largest, 0) : largest;

    for (size_t i = 0; i < p->n && p->type == CMN_FP16; i++) {
        p->host[i] = fabsf(p->host[i]) > most ? copysignf(INFINITY, p->host[i]) : p->host[i];
    }
}

static void copy_back(struct non_cuda_aware *s, const struct part *p)
{
    show_overflow(p, 1);
    check(cudaMemcpyAsync(p->data, p->host, p->n * sizeof *p->data, cudaMemcpyHostToDevice,
                          s->stream),
          "cudaMemcpyAsync");
    scale(s, p, p->divisor);
}

static int reached(cudaEvent_t event)
{
    int is = cmn_device_reached(event);

    if (is < 0) {
        cmn_fatal_reason();
    }
    return is;
}

/* To the other ranks that copy. */
static void send(struct non_cuda_aware *s, struct part *p)
{
    struct cmn_sum sum = {.data = p->host, .n = p->n, .dtype = p->type};

    show_overflow(p, 0);
    p->sent = cmn_clock();
    cmn_sums_begin(s->between, &sum);
}

/* Advances each part as far as it can go. */
static void poll_non_cuda_aware(void *self)
{
    struct non_cuda_aware *s = self;
    long summed;

    if (s->compressed) {
        cmn_compressed_poll(s->compressed);
        return;
    }
    if (s->within) {
        cmn_nccl_poll(s->within);
    }
    if (!s->between) {
        return;
    }
    while (s->out < s->begun && ordered(s, s->out)) {
        copy_out(s, &s->part[s->out++]);
    }
    while (s->sent < s->out && reached(s->part[s->sent].copied)) {
        send(s, &s->part[s->sent++]);
    }
    summed = cmn_sums_progress(s->between, 0);
    while (s->back < summed - s->before) {
        cmn_timeline_span(CMN_SPAN_EXCHANGE, s->back, s->part[s->back].sent, cmn_clock());
        copy_back(s, &s->part[s->back++]);
    }
}

static enum cmn_dtype type_of(const struct non_cuda_aware *s)
{
    return cmn_wire_type(s->intra.options);
}

static void begin_non_cuda_aware(void *self, const struct cmn_exchange *x, size_t upto)
{
    struct non_cuda_aware *s = self;

    if (s->compressed) {
        cmn_compressed_begin(s->compressed, x, upto);
        return;
    }
    cmn_parts_begin(&s->parts, x, upto, type_of(s), begin_part, s);
    poll_non_cuda_aware(s);
}

/* Between two polls. `sums`: NCCL may wait for another rank of the node; else it is the GPU alone. */
static void yield_until(const struct non_cuda_aware *s, double since, int sums)
{
    long timeout = s->intra.options->timeout;

    sched_yield();
    if (!cmn_status_timed_out(cmn_clock() - since, timeout)) {
        return;
    }
    if (sums) {
        cmn_fatal_lost("nccl: intra: nothing was summed within the node for %ld s (cmn_timeout): a "
                       "rank there may be dead, stuck, or cut off; NCCL_DEBUG=INFO shows what NCCL "
                       "does",
                       timeout);
    }
    cmn_fatal("a copy between GPU and CPU did not end in %ld s (cmn_timeout)", timeout);
}

/* Until all parts are back. */
static void wait_for_copies(struct non_cuda_aware *s)
{
    double since = cmn_clock();

    while (s->sent < s->begun) {
        int before = s->out + s->sent + s->back;
        poll_non_cuda_aware(s);
        since = s->out + s->sent + s->back > before ? cmn_clock() : since;
        yield_until(s, since, s->within != NULL);
    }
    while (s->back < s->begun) {
        cmn_sums_progress(s->between, s->before + s->back + 1);
        poll_non_cuda_aware(s);
    }
    s->before += s->begun;
    since = cmn_clock();
    check(cudaEventRecord(s->returned, s->stream), "cudaEventRecord");
    while (!reached(s->returned)) {
        yield_until(s, since, 0);
    }
}

static void allreduce_non_cuda_aware(void *self, const struct cmn_exchange *x)
{
    struct non_cuda_aware *s = self;
    size_t n = x->block.n + x->metrics.n;

    if (s->compressed) {
        cmn_compressed_allreduce(s->compressed, x);
        return;
    }
    cmn_parts_begin_rest(&s->parts, x, type_of(s), begin_part, s);
    s->parts = (struct cmn_parts){0};
    poll_non_cuda_aware(s);
    if (s->between) {
        wait_for_copies(s);
    }
    if (s->within) {
        cmn_nccl_end(s->within);
    }
    s->begun = s->out = s->sent = s->back = 0;
    if (s->within) {
        cmn_nccl_bcast(s->within, x->block.data, n);
    }
}

static int state_non_cuda_aware(void *self, int i, struct cmn_state *state)
{
    const struct non_cuda_aware *s = self;

    return s->compressed ? cmn_compressed_state(s->compressed, i, state) : 0;
}

static void destroy(cudaEvent_t event)
{
    if (event) {
        cudaEventDestroy(event);
    }
}

static void close_non_cuda_aware(void *self)
{
    struct non_cuda_aware *s = self;

    cmn_compressed_close(s->compressed);
    if (s->within) {
        cmn_nccl_close(s->within);
    }
    cmn_sums_close(s->between);
    cudaFreeHost(s->host);
    for (int i = 0; i < PARTS; i++) {
        destroy(s->part[i].ready);
        destroy(s->part[i].copied);
    }
    destroy(s->returned);
    if (s->stream) {
        cudaStreamDestroy(s->stream);
    }
    free(s);
}

#else

#include "base/log.h"

static const char without[] = "built without CUDA: make GPU=1";

static const char *refuses_non_cuda_aware(const struct cmn_topology *t, const struct cmn_options *o)
{
    (void)t;
    (void)o;
    return without;
}

static int open_non_cuda_aware(void **self, const struct cmn_topology *t,
                               const struct cmn_options *o)
{
    (void)self;
    (void)t;
    (void)o;
    return cmn_fail("%s", without);
}

static int memory_non_cuda_aware(void *self, size_t floats, float **memory)
{
    (void)self;
    (void)floats;
    (void)memory;
    return cmn_fail("%s", without);
}

static void allreduce_non_cuda_aware(void *self, const struct cmn_exchange *x)
{
    (void)self;
    (void)x;
    cmn_fatal("%s", without);
}

static void begin_non_cuda_aware(void *self, const struct cmn_exchange *x, size_t upto)
{
    (void)upto;
    allreduce_non_cuda_aware(self, x);
}

static void poll_non_cuda_aware(void *self)
{
    allreduce_non_cuda_aware(self, NULL);
}

static int state_non_cuda_aware(void *self, int i, struct cmn_state *state)
{
    (void)self;
    (void)i;
    (void)state;
    return 0;
}

static void close_non_cuda_aware(void *self)
{
    (void)self;
}

#endif

const struct cmn_communicator cmn_communicator_non_cuda_aware = {
    .name = "non_cuda_aware",
    .cpu = "no",
    .gpu = "yes",
    .use = "GPUs on several nodes whose MPI is not CUDA-aware, or without NCCL",
    .sums = 1,
    .can = {0, CMN_CAN_ALL},
    .refuses = refuses_non_cuda_aware,
    .open = open_non_cuda_aware,
    .memory = memory_non_cuda_aware,
    .allreduce = allreduce_non_cuda_aware,
    .begin = begin_non_cuda_aware,
    .poll = poll_non_cuda_aware,
    .state = state_non_cuda_aware,
    .close = close_non_cuda_aware,
};
