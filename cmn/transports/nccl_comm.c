/* NCCL's communicator: start and end, waits, and failures. All calls of NCCL return immediately,
 * and what they began is polled, so the death of a peer is noticed. */
#ifdef CMN_NCCL

#include "transports/nccl_internal.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fatal.h"
#include "base/log.h"
#include "base/status.h"
#include "mpi/call.h"
#include "mpi/device.h"

static const double A_MOMENT = 0.1; /* seconds */

enum {
    SPINS = 2000,      /* polls before a waiting rank begins to sleep between them */
    PAUSE_US = 50,     /* microseconds of sleep between polls then */
    ABORT_AT_MOST = 5, /* seconds that ncclCommAbort may take */
};

struct nccl *cmn_nccl_opened;

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

int cmn_nccl_is_error(ncclResult_t code)
{
    return code != ncclSuccess && code != ncclInProgress;
}

/* Does the same as cmn_nccl_failed(), with NCCL's reason. */
static int failed(struct nccl *c, ncclResult_t code)
{
    const char *more = c->comm && !c->aborted ? ncclGetLastError(c->comm) : NULL;

    (code == ncclRemoteError ? cmn_fail_lost : cmn_fail)(
        "nccl: %s: %s on rank %d of %d: %s%s%s", c->group->name, c->what, c->rank, c->size,
        ncclGetErrorString(code), more && *more ? ": " : "", more ? more : "");
    abort_nccl(c);
    return -1;
}

void cmn_nccl_check(struct nccl *c, ncclResult_t code)
{
    if (cmn_nccl_is_error(code)) {
        failed(c, code);
        cmn_fatal_reason();
    }
}

int cmn_nccl_failed(struct nccl *c)
{
    cmn_fail_in("nccl: %s: %s on rank %d of %d", c->group->name, c->what, c->rank, c->size);
    abort_nccl(c);
    return -1;
}

void cmn_nccl_check_cuda(struct nccl *c, cudaError_t code, const char *call)
{
    if (cmn_device_check(code, call)) {
        cmn_nccl_failed(c);
        cmn_fatal_reason();
    }
}

/* Returns whether the GPU does not reach the event within A_MOMENT. */
static int is_late(cudaEvent_t event)
{
    double since = cmn_clock();

    while (cmn_device_reached(event) == 0) {
        if (cmn_clock() - since > A_MOMENT) {
            return 1;
        }
    }
    return 0;
}

/* Returns whether this rank's GPU is still busy with work that was queued before the operation.
 * Then the other ranks are not to blame for the delay. */
static int own_gpu_is_late(const struct nccl *c)
{
    for (int i = 0; i < c->gathers; i++) {
        if (is_late(c->gather[i].done)) { /* work queued behind this gather waits for other ranks */
            return is_late(c->gather[i].ready);
        }
    }
    for (int i = 0; i < c->begun; i++) {
        if (is_late(c->job[(c->base + i) % CMN_NCCL_JOBS].ready)) {
            return 1;
        }
    }
    return 0;
}

static _Noreturn void too_late(struct nccl *c)
{
    int own = own_gpu_is_late(c);

    abort_nccl(c);
    if (own) {
        cmn_fatal_lost("nccl: %s: %s: the GPU of rank %d of %d has not come to it in %ld s "
                       "(cmn_timeout): work of its own does not end there",
                       c->group->name, c->what, c->rank, c->size, c->group->options->timeout);
    }
    cmn_fatal_lost("nccl: %s: %s: rank %d of %d waited %ld s (cmn_timeout) for the others: "
                   "one may be dead, stuck, or cut off; NCCL_DEBUG=INFO shows what NCCL does",
                   c->group->name, c->what, c->rank, c->size, c->group->options->timeout);
}

/* ---- waiting ---- */

void cmn_nccl_start(struct nccl *c, const char *what, size_t n)
{
    snprintf(c->what, sizeof c->what, "%s of %zu floats", what, n);
    c->began = cmn_clock();
}

ncclResult_t cmn_nccl_state(struct nccl *c)
{
    ncclResult_t state = ncclSuccess, code = ncclCommGetAsyncError(c->comm, &state);

    code = code != ncclSuccess ? code : state;
    return code == ncclSuccess && c->partner ? cmn_nccl_state(c->partner) : code;
}

/* Pauses between two polls, and ends the job after cmn_timeout. */
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

ncclResult_t cmn_nccl_await_taken(struct nccl *c, ncclResult_t code)
{
    cmn_status_wait_begin();
    for (int polls = 0; !cmn_nccl_is_error(code); polls++) {
        code = cmn_nccl_state(c);
        if (code == ncclSuccess) {
            break;
        }
        if (!cmn_nccl_is_error(code)) {
            pause_after(c, polls);
        }
    }
    cmn_status_wait_end();
    return code;
}

int cmn_nccl_reached(struct nccl *c, cudaEvent_t event)
{
    int is = cmn_device_reached(event);

    if (is < 0) {
        cmn_nccl_failed(c);
        cmn_fatal_reason();
    }
    return is;
}

void cmn_nccl_await_event(struct nccl *c, cudaEvent_t event, void (*idle)(void *self), void *idler)
{
    for (int polls = 0; !cmn_nccl_reached(c, event); polls++) {
        cmn_nccl_check(c, cmn_nccl_state(c));
        if (idle) {
            idle(idler);
        }
        pause_after(c, polls);
    }
}

void cmn_nccl_await_stream(struct nccl *c)
{
    cmn_status_wait_begin();
    cmn_nccl_check_cuda(c, cudaEventRecord(c->done, c->stream), "cudaEventRecord");
    cmn_nccl_await_event(c, c->done, NULL, NULL);
    cmn_status_wait_end();
}

/* ---- start and end ---- */

int cmn_nccl_connect(struct nccl *c)
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
    code = cmn_nccl_await_taken(
        c, ncclCommInitRankConfig(&c->comm, c->size, first.id, c->rank, &config));
    c->next = cmn_nccl_opened;
    cmn_nccl_opened = c;
    return cmn_nccl_is_error(code) ? failed(c, code) : 0;
}

void cmn_nccl_disconnect(struct nccl *c)
{
    for (struct nccl **at = &cmn_nccl_opened; *at; at = &(*at)->next) {
        if (*at == c) {
            *at = c->next;
            break;
        }
    }
    for (struct nccl *other = cmn_nccl_opened; other; other = other->next) {
        other->partner = other->partner == c ? NULL : other->partner;
    }
    if (c->comm && !c->aborted) {
        snprintf(c->what, sizeof c->what, "end");
        c->began = cmn_clock();
        if (cmn_nccl_await_taken(c, ncclCommFinalize(c->comm)) == ncclSuccess) {
            ncclCommDestroy(c->comm);
        }
    }
}

#endif
