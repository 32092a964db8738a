/* Background sums of the NCCL transport: a ring of jobs, each with an event that tells when its
 * floats are final. NCCL accepts one call at a time, and work that must follow the call on the
 * stream can be queued only after that. Blocking until then could mean waiting for other ranks, so
 * jobs are given to NCCL at every poll. The sequence of calls is the same on all ranks, whenever
 * they are made. */
#ifdef CMN_NCCL

#include "base/clock.h"
#include "base/timeline.h"
#include "mpi/kernels.h"
#include "transports/nccl_internal.h"

/* Before 2.24, nccl.h defines ncclBfloat16 only for C++. */
#if NCCL_VERSION_CODE < 22400
#define BFLOAT16 ((ncclDataType_t)9)
#else
#define BFLOAT16 ncclBfloat16
#endif

/* Records the event on the stream, and creates it first if necessary. */
static void stamp(struct nccl *c, cudaEvent_t *event)
{
    if (!*event) {
        cmn_nccl_check_cuda(c, cudaEventCreateWithFlags(event, cudaEventDefault),
                            "cudaEventCreate");
    }
    cmn_nccl_check_cuda(c, cudaEventRecord(*event, c->stream), "cudaEventRecord");
}

/* The GPU measures time only between events. `last` is behind all jobs and was reached about now,
 * so the jobs' times are counted back from it. */
static void record_spans(struct nccl *c)
{
    double now = cmn_clock();

    for (int i = 0; i < CMN_NCCL_JOBS && cmn_timeline_on; i++) {
        const struct job *job = &c->job[i];
        float since_begin, since_end; /* ms */
        if (!job->n) {
            continue;
        }
        cmn_nccl_check_cuda(c, cudaEventElapsedTime(&since_begin, job->began, c->last),
                            "cudaEventElapsedTime");
        cmn_nccl_check_cuda(c, cudaEventElapsedTime(&since_end, job->ended, c->last),
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

    cmn_nccl_check_cuda(c, cudaStreamWaitEvent(c->stream, job->ready, 0), "cudaStreamWaitEvent");
    if (cmn_timeline_on) {
        stamp(c, &job->began);
    }
    if (job->operation != SUM) {
        result =
            cmn_nccl_queue_slices(c, job->data, job->n, job->slices, job->operation == SCATTER);
    } else if (job->type == CMN_FP32) {
        result = ncclAllReduce(job->data, job->data, job->n, ncclFloat32, ncclSum, job->over->comm,
                               c->stream);
    } else {
        cmn_nccl_check_cuda(c,
                            cmn_kernel_cast_to_16(c->half, job->data, job->n, 1.0f / job->divisor,
                                                  job->type, c->stream),
                            "cast to 16 bits");
        result = ncclAllReduce(c->half, c->half, job->n, as, ncclSum, job->over->comm, c->stream);
    }
    c->given = c->first;
    c->first = (c->first + 1) % CMN_NCCL_JOBS;
    c->waiting--;
    cmn_nccl_check(c, result);
}

/* NCCL has accepted the job: queues the cast and the event that follow it on the stream. */
static void follow(struct nccl *c)
{
    struct job *job = &c->job[c->given];

    c->given = -1;
    if (job->type != CMN_FP32) {
        cmn_nccl_check_cuda(
            c,
            cmn_kernel_cast_to_32(job->data, c->half, job->n, job->divisor, job->type, c->stream),
            "cast to 32 bits");
    }
    if (cmn_timeline_on) {
        stamp(c, &job->ended);
    }
}

void cmn_nccl_advance(struct nccl *c, int wait, int left)
{
    for (;;) {
        ncclResult_t state = wait ? cmn_nccl_await_taken(c, ncclSuccess) : cmn_nccl_state(c);
        cmn_nccl_check(c, state);
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

/* Makes room for n 16-bit numbers. Jobs follow each other on the stream, so all of them share
 * it. */
static void make_room(struct nccl *c, size_t n, enum cmn_dtype type)
{
    if (n <= c->half_room) {
        return;
    }
    if (c->half) {
        cmn_nccl_advance(c, 1, 0);
        cmn_nccl_await_stream(c);
    }
    cmn_nccl_new_half(c, n, type);
}

/* Appends a job to the ring. The caller sets what is to be done; events and numbers are set
 * here. */
static void begin(struct nccl *c, struct job job)
{
    static const char *const names[] = {"allreduce", "reduce", "broadcast"};
    struct job *mine;

    if (job.n == 0) {
        return;
    }
    cmn_nccl_start(c, names[job.operation], job.n);
    if (job.type != CMN_FP32) {
        make_room(c, job.n, job.type);
    }
    if (c->waiting == CMN_NCCL_JOBS - 1) {
        cmn_nccl_advance(c, 1, CMN_NCCL_JOBS - 2);
    }
    mine = &c->job[(c->first + c->waiting) % CMN_NCCL_JOBS];
    job.ready = mine->ready;
    job.began = mine->began;
    job.ended = mine->ended;
    if (!job.ready) {
        cmn_nccl_check_cuda(c, cudaEventCreateWithFlags(&job.ready, cudaEventDisableTiming),
                            "cudaEventCreate");
    }
    cmn_nccl_check_cuda(c, cudaEventRecord(job.ready, cudaStreamLegacy), "cudaEventRecord");
    job.divisor = job.divisor > 0 ? job.divisor : (float)job.over->size;
    job.number = c->begun;
    *mine = job;
    c->waiting++;
    c->begun++;
    c->floats += job.n;
    cmn_nccl_advance(c, 0, 0);
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

void cmn_nccl_room(void *self, size_t n, enum cmn_dtype type)
{
    if (type != CMN_FP32) {
        make_room(self, n, type);
    }
}

void cmn_nccl_poll(void *self)
{
    struct nccl *c = self;

    if (c->begun) {
        cmn_nccl_advance(c, 0, 0);
    }
}

void cmn_nccl_order(void *self)
{
    struct nccl *c = self;

    if (c->begun == 0) {
        return;
    }
    cmn_nccl_start(c, "allreduce", c->floats);
    cmn_nccl_advance(c, 1, 0);
    cmn_nccl_check_cuda(c, cudaEventRecord(c->done, c->stream), "cudaEventRecord");
    cmn_nccl_check_cuda(c, cudaStreamWaitEvent(cudaStreamLegacy, c->done, 0),
                        "cudaStreamWaitEvent");
}

void cmn_nccl_end(void *self)
{
    struct nccl *c = self;

    if (c->begun == 0) {
        return;
    }
    cmn_nccl_start(c, "allreduce", c->floats);
    cmn_nccl_advance(c, 1, 0);
    if (cmn_timeline_on) {
        stamp(c, &c->last);
    }
    cmn_nccl_await_stream(c);
    record_spans(c);
    for (int i = 0; i < CMN_NCCL_JOBS; i++) {
        c->job[i].n = 0;
    }
    c->base = c->first;
    c->begun = 0;
    c->floats = 0;
}

void cmn_nccl_free_jobs(struct nccl *c)
{
    for (int i = 0; i < CMN_NCCL_JOBS; i++) {
        cmn_nccl_destroy(c->job[i].ready);
        cmn_nccl_destroy(c->job[i].began);
        cmn_nccl_destroy(c->job[i].ended);
    }
    cmn_nccl_destroy(c->last);
}

#endif
