/* Sums by NCCL while Darknet goes on: a ring of jobs, each with an event that says when its floats are final.
 *
 * NCCL takes one call at a time, and what must follow it on the stream can be queued only then. Whoever waited for that
 * could wait for other ranks; so jobs are given to NCCL when somebody comes by. The calls are the same on all
 * ranks, whenever they are made. */
#include "transports/nccl.h"

#include "base/log.h"
#include "transports/nccl_state.h"

enum { PARTS = 16, PART_AT_LEAST = 256 * 1024, LINE = 16 }; /* floats */

size_t cmn_nccl_part(size_t n)
{
    size_t even = (n / PARTS + LINE) / LINE * LINE;

    return even > PART_AT_LEAST ? even : PART_AT_LEAST;
}

#ifdef CMN_NCCL
#include "mpi/device.h"
#include "mpi/kernels.h"
#include "base/timeline.h"

/* Notes on the stream that it is as far as here. */
static int stamp(struct cmn_nccl_state *c, cudaEvent_t *event)
{
    cudaError_t code = cudaSuccess;

    if (!*event) {
        code = cudaEventCreateWithFlags(event, cudaEventDefault);
    }
    if (code == cudaSuccess) {
        code = cudaEventRecord(*event, c->stream);
    }
    return code == cudaSuccess ? 0 : cmn_nccl_failed_cuda(c, code, "cudaEventRecord");
}

/* The GPU's clock counts from events: `last` is behind all jobs, and was reached about now. */
static int note_spans(struct cmn_nccl_state *c)
{
    double now = cmn_clock();

    for (int i = 0; i < CMN_NCCL_JOBS && cmn_timeline_on; i++) {
        const struct cmn_nccl_job *job = &c->job[i];
        float since_begin, since_end; /* ms */
        cudaError_t code;
        if (!job->n) {
            continue;
        }
        code = cudaEventElapsedTime(&since_begin, job->began, c->last);
        if (code == cudaSuccess) {
            code = cudaEventElapsedTime(&since_end, job->ended, c->last);
        }
        if (code != cudaSuccess) {
            return cmn_nccl_failed_cuda(c, code, "cudaEventElapsedTime");
        }
        cmn_timeline_span(CMN_SPAN_EXCHANGE, job->number, now - 1e-3 * (double)since_begin,
                          now - 1e-3 * (double)since_end);
    }
    return 0;
}

/* The next job goes to NCCL. */
static int give(struct cmn_nccl_state *c)
{
    struct cmn_nccl_job *job = &c->job[c->first];
    ncclDataType_t as = job->type == CMN_FP16 ? ncclFloat16 : ncclBfloat16;
    ncclResult_t result;
    int code = cudaStreamWaitEvent(c->stream, job->ready, 0);

    if (code) {
        return cmn_nccl_failed_cuda(c, code, "cudaStreamWaitEvent");
    }
    if (cmn_timeline_on && stamp(c, &job->began)) {
        return -1;
    }
    if (job->type == CMN_FP32) {
        result =
            ncclAllReduce(job->data, job->data, job->n, ncclFloat32, ncclSum, c->comm, c->stream);
    } else {
        code = cmn_kernel_cast_to_16(c->half, job->data, job->n, 1.0f / (float)c->size, job->type,
                                     c->stream);
        if (code) {
            return cmn_nccl_failed_cuda(c, code, "cast to 16 bits");
        }
        result = ncclAllReduce(c->half, c->half, job->n, as, ncclSum, c->comm, c->stream);
    }
    c->given = c->first;
    c->first = (c->first + 1) % CMN_NCCL_JOBS;
    c->waiting--;
    return cmn_nccl_bad(result) ? cmn_nccl_failed(c, result) : 0;
}

/* NCCL has taken the job that it was given. */
static int follow(struct cmn_nccl_state *c)
{
    struct cmn_nccl_job *job = &c->job[c->given];
    int code = 0;

    c->given = -1;
    if (job->type != CMN_FP32) {
        code =
            cmn_kernel_cast_to_32(job->data, c->half, job->n, (float)c->size, job->type, c->stream);
    }
    if (code) {
        return cmn_nccl_failed_cuda(c, code, "cast from 16 bits");
    }
    return (cmn_timeline_on || job->root >= 0) && stamp(c, &job->ended) ? -1 : 0;
}

/* Gives NCCL jobs until at most `left` wait; without `wait` only as long as it takes them at once. */
static int advance(struct cmn_nccl_state *c, int wait, int left)
{
    for (;;) {
        ncclResult_t state = ncclSuccess;
        if (wait ? cmn_nccl_taken(c, ncclSuccess) : cmn_nccl_ask(c, &state)) {
            return -1;
        }
        if (state == ncclInProgress) {
            return 0;
        }
        if (c->given >= 0 && follow(c)) {
            return -1;
        }
        if (c->waiting <= left) {
            return 0;
        }
        if (give(c)) {
            return -1;
        }
    }
}

/* Jobs follow each other on the stream, so the room for 16 bits of one serves all. */
static int make_room(struct cmn_nccl_state *c, size_t n)
{
    cudaError_t code;

    if (n <= c->half_room) {
        return 0;
    }
    if (c->half && (advance(c, 1, 0) || cmn_nccl_finished(c))) {
        return -1;
    }
    cudaFree(c->half);
    c->half = NULL;
    c->half_room = 0;
    code = cudaMalloc(&c->half, n * sizeof(short));
    if (code != cudaSuccess) {
        return cmn_nccl_failed_cuda(c, code, "cudaMalloc");
    }
    c->half_room = n;
    return 0;
}

static int begin(struct cmn_nccl_state *c, float *data, size_t n, enum cmn_dtype type, int root)
{
    struct cmn_nccl_job *job;
    cudaError_t code = cudaSuccess;

    if (n == 0) {
        return 0;
    }
    if (cmn_nccl_starts(c, root < 0 ? "allreduce" : "reduce", n) ||
        (type != CMN_FP32 && make_room(c, n)) ||
        (c->waiting == CMN_NCCL_JOBS - 1 && advance(c, 1, CMN_NCCL_JOBS - 2))) {
        return -1;
    }
    job = &c->job[(c->first + c->waiting) % CMN_NCCL_JOBS];
    if (!job->ready) {
        code = cudaEventCreateWithFlags(&job->ready, cudaEventDisableTiming);
    }
    if (code == cudaSuccess) {
        code = cudaEventRecord(job->ready, cudaStreamLegacy);
    }
    if (code != cudaSuccess) {
        return cmn_nccl_failed_cuda(c, code, "cudaEventRecord");
    }
    job->data = data;
    job->n = n;
    job->type = type;
    job->root = root;
    job->number = c->begun;
    c->waiting++;
    c->begun++;
    c->floats += n;
    return advance(c, 0, 0);
}

int cmn_nccl_begin(void *self, float *data, size_t n, enum cmn_dtype type)
{
    return begin(self, data, n, type, -1);
}

int cmn_nccl_begin_reduce(void *self, float *data, size_t n)
{
    return begin(self, data, n, CMN_FP32, 0);
}

int cmn_nccl_orders_stream(void *self, int i, void *stream)
{
    struct cmn_nccl_state *c = self;
    int taken = c->begun - c->waiting - (c->given >= 0), code;

    if (i >= taken) {
        return 0;
    }
    code =
        cudaStreamWaitEvent((cudaStream_t)stream, c->job[(c->base + i) % CMN_NCCL_JOBS].ended, 0);
    return code ? cmn_nccl_failed_cuda(c, code, "cudaStreamWaitEvent") : 1;
}

int cmn_nccl_poll(void *self)
{
    struct cmn_nccl_state *c = self;

    if (c->failed) {
        return cmn_fail("nccl: %s: the communicator was given up before", c->group->name);
    }
    return c->begun && advance(c, 0, 0) ? -1 : 0;
}

int cmn_nccl_end(void *self)
{
    struct cmn_nccl_state *c = self;

    if (c->begun == 0) {
        return 0;
    }
    if (cmn_nccl_starts(c, "allreduce", c->floats) || advance(c, 1, 0) ||
        (cmn_timeline_on && stamp(c, &c->last)) || cmn_nccl_finished(c) || note_spans(c)) {
        return -1;
    }
    for (int i = 0; i < CMN_NCCL_JOBS; i++) {
        c->job[i].n = 0;
    }
    c->base = c->first;
    c->begun = 0;
    c->floats = 0;
    return 0;
}

static void forget(cudaEvent_t event)
{
    if (event) {
        cudaEventDestroy(event);
    }
}

void cmn_nccl_background_close(struct cmn_nccl_state *c)
{
    cudaFree(c->half);
    forget(c->last);
    for (int i = 0; i < CMN_NCCL_JOBS; i++) {
        forget(c->job[i].ready);
        forget(c->job[i].began);
        forget(c->job[i].ended);
    }
}

#else

static int without(void)
{
    return cmn_fail("built without NCCL: make GPU=1 NCCL=1");
}

int cmn_nccl_begin(void *self, float *data, size_t n, enum cmn_dtype type)
{
    (void)self;
    (void)data;
    (void)n;
    (void)type;
    return without();
}

int cmn_nccl_begin_reduce(void *self, float *data, size_t n)
{
    (void)self;
    (void)data;
    (void)n;
    return without();
}

int cmn_nccl_orders_stream(void *self, int i, void *stream)
{
    (void)self;
    (void)i;
    (void)stream;
    return without();
}

int cmn_nccl_poll(void *self)
{
    (void)self;
    return without();
}

int cmn_nccl_end(void *self)
{
    (void)self;
    return without();
}

#endif
