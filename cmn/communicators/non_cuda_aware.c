/* non_cuda_aware: as hierarchical, with the part between the nodes in the CPU's memory, for an MPI that
 * cannot be given the GPU's.
 *
 * Steps: NCCL reduce to the node's first rank; its block goes to page-locked memory, is summed there among the
 * nodes' first ranks by MPI, and goes back; NCCL broadcast within the node. Copies and MPI work on two buffers
 * in turn, so that one chunk is copied while another travels.
 * Without NCCL, or with cmn_intra=mpi, every rank copies, and MPI sums over all ranks.
 * Bytes, block of n floats, M nodes: over a node's link each way 2(M-1)/M * 4n; between a GPU and its host 4n
 * each way. Without NCCL those of flat.
 * Source: ChainerMN's communicator of the same name (Akiba, Fukuda, Suzuki, "ChainerMN: Scalable
 * Distributed Deep Learning Framework", 2017); the two buffers are ours. */
#include "communicator.h"

#include "log.h"
#include "transports/transport.h"

#ifdef GPU

#include <cuda_runtime.h>
#include <sched.h>
#include <stdlib.h>

#include "device.h"

enum { CHUNK = 1024 * 1024 }; /* floats in a buffer: what the mpi transport sends at once */

struct non_cuda_aware {
    struct cmn_group intra, outer; /* outer: the ranks that copy */
    struct cmn_topology on_host;   /* as the job's, but buffers are the CPU's */
    void *within, *between;        /* transports; NULL where there is none */
    cudaStream_t stream;
    cudaEvent_t ready, copied[2]; /* Darknet's work; the last copy from or to buffer i */
    float *buffer[2];
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
        code = cudaEventCreateWithFlags(&s->ready, cudaEventDisableTiming);
    }
    for (int i = 0; i < 2 && !code; i++) {
        code = cudaEventCreateWithFlags(&s->copied[i], cudaEventDisableTiming);
        if (!code) {
            code =
                cudaHostAlloc((void **)&s->buffer[i], CHUNK * sizeof(float), cudaHostAllocDefault);
        }
    }
    return cmn_device_check(code, "stream, events and page-locked memory");
}

static int open_non_cuda_aware(void **self, const struct cmn_topology *t,
                               const struct cmn_options *o)
{
    struct non_cuda_aware *s = calloc(1, sizeof *s);
    int by_nccl = o->intra != CMN_INTRA_MPI && !cmn_nccl.refuses(t, o);
    int outer_size;

    if (!s) {
        return cmn_fail("out of memory");
    }
    *self = s;
    s->on_host = *t;
    s->on_host.device = -1;
    s->intra = (struct cmn_group){t->intra, "intra", t, o, 0};
    s->outer = by_nccl ? (struct cmn_group){t->inter, "inter", &s->on_host, o, 0}
                       : (struct cmn_group){t->world, "world", &s->on_host, o, 0};
    outer_size = by_nccl ? t->inter_size : t->size;
    if (by_nccl && t->intra_size > 1 && cmn_nccl.open(&s->within, &s->intra)) {
        return -1;
    }
    if (outer_size == 1 || (by_nccl && t->intra_rank > 0)) {
        return 0;
    }
    return cmn_mpi.open(&s->between, &s->outer) || open_copies(s) ? -1 : 0;
}

static int wait_for(const struct non_cuda_aware *s, cudaEvent_t event, size_t at)
{
    double begin = cmn_clock();
    cudaError_t code;

    while ((code = cudaEventQuery(event)) == cudaErrorNotReady) {
        if (cmn_clock() - begin > (double)s->outer.options->timeout) {
            return cmn_fail(
                "a copy between GPU and CPU at float %zu did not end in %ld s (cmn_timeout)", at,
                s->outer.options->timeout);
        }
        sched_yield();
    }
    return cmn_device_check(code, "cudaEventQuery");
}

static size_t piece(size_t n, size_t at)
{
    return n - at < CHUNK ? n - at : CHUNK;
}

/* Queues a copy of the chunk at `at`; its buffer's event follows it. */
static int copy_chunk(struct non_cuda_aware *s, float *data, size_t n, size_t at, int to_host)
{
    int i = (int)(at / CHUNK % 2);
    size_t bytes = piece(n, at) * sizeof *data;
    int code =
        to_host
            ? cudaMemcpyAsync(s->buffer[i], data + at, bytes, cudaMemcpyDeviceToHost, s->stream)
            : cudaMemcpyAsync(data + at, s->buffer[i], bytes, cudaMemcpyHostToDevice, s->stream);

    if (!code) {
        code = cudaEventRecord(s->copied[i], s->stream);
    }
    return cmn_device_check(code, "cudaMemcpyAsync");
}

/* The stream keeps the order, so the next chunk enters a buffer after the last one has left it. */
static int sum_on_host(struct non_cuda_aware *s, float *data, size_t n)
{
    int code = cudaEventRecord(s->ready, cudaStreamLegacy);

    if (!code) {
        code = cudaStreamWaitEvent(s->stream, s->ready, 0);
    }
    if (cmn_device_check(code, "cudaStreamWaitEvent") || copy_chunk(s, data, n, 0, 1)) {
        return -1;
    }
    for (size_t at = 0; at < n; at += CHUNK) {
        int i = (int)(at / CHUNK % 2);
        if (wait_for(s, s->copied[i], at) ||
            (at + CHUNK < n && copy_chunk(s, data, n, at + CHUNK, 1)) ||
            cmn_mpi.allreduce(s->between, s->buffer[i], piece(n, at)) ||
            copy_chunk(s, data, n, at, 0)) {
            return -1;
        }
    }
    for (int i = 0; i < 2; i++) {
        if (wait_for(s, s->copied[i], n)) {
            return -1;
        }
    }
    return 0;
}

static int allreduce_non_cuda_aware(void *self, const struct cmn_exchange *x)
{
    struct non_cuda_aware *s = self;
    size_t n = x->block.n + x->tally.n;

    if (n == 0) {
        return 0;
    }
    if (s->within && cmn_nccl.reduce(s->within, x->block.data, n)) {
        return -1;
    }
    if (s->between && sum_on_host(s, x->block.data, n)) {
        return -1;
    }
    return s->within ? cmn_nccl.bcast(s->within, x->block.data, n) : 0;
}

static void close_non_cuda_aware(void *self)
{
    struct non_cuda_aware *s = self;

    if (s->within) {
        cmn_nccl.close(s->within);
    }
    if (s->between) {
        cmn_mpi.close(s->between);
    }
    for (int i = 0; i < 2; i++) {
        cudaFreeHost(s->buffer[i]);
        if (s->copied[i]) {
            cudaEventDestroy(s->copied[i]);
        }
    }
    if (s->ready) {
        cudaEventDestroy(s->ready);
    }
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
    .close = close_non_cuda_aware,
};
