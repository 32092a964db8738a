#include "transports/nccl_state.h"

#ifdef CMN_NCCL
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "mpi/device.h"
#include "base/log.h"
#include "base/status.h"

enum {
    SPINS = 2000,      /* questions before the waiting rank gives its core to others */
    PAUSE_US = 50,     /* between questions then */
    ABORT_AT_MOST = 5, /* seconds that ncclCommAbort may take */
};

static void *abort_communicator(void *comm)
{
    ncclCommAbort(comm);
    return NULL;
}

/* Ends what still runs on the GPU. In a thread, because it may wait for a peer that is no more; the
 * job ends next in any case. Returns -1. */
static int give_up(struct cmn_nccl_state *c)
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

int cmn_nccl_failed(struct cmn_nccl_state *c, ncclResult_t code)
{
    const char *more = c->comm && !c->failed ? ncclGetLastError(c->comm) : NULL;

    (code == ncclRemoteError ? cmn_fail_lost : cmn_fail)(
        "nccl: %s: %s on rank %d of %d: %s%s%s", c->group->name, c->what, c->rank, c->size,
        ncclGetErrorString(code), more && *more ? ": " : "", more ? more : "");
    return give_up(c);
}

int cmn_nccl_failed_cuda(struct cmn_nccl_state *c, int code, const char *call)
{
    cmn_device_check(code, call);
    cmn_fail_in("nccl: %s: %s on rank %d of %d", c->group->name, c->what, c->rank, c->size);
    return give_up(c);
}

static int too_late(struct cmn_nccl_state *c)
{
    cmn_fail_lost("nccl: %s: %s: rank %d of %d waited %ld s (cmn_timeout) for the others: "
                  "one may be dead, stuck, or cut off; NCCL_DEBUG=INFO shows what NCCL does",
                  c->group->name, c->what, c->rank, c->size, c->group->options->timeout);
    return give_up(c);
}

int cmn_nccl_bad(ncclResult_t code)
{
    return code != ncclSuccess && code != ncclInProgress;
}

int cmn_nccl_ask(struct cmn_nccl_state *c, ncclResult_t *state)
{
    ncclResult_t code = ncclCommGetAsyncError(c->comm, state);

    return code != ncclSuccess    ? cmn_nccl_failed(c, code)
           : cmn_nccl_bad(*state) ? cmn_nccl_failed(c, *state)
                                  : 0;
}

/* Asks after NCCL's own state, and lets others have the core for a while. 0, or -1 when there is no hope. */
static int ask(struct cmn_nccl_state *c, int questions, ncclResult_t *state)
{
    if (cmn_nccl_ask(c, state)) {
        return -1;
    }
    if (cmn_status_timed_out(cmn_clock() - c->begin, c->group->options->timeout)) {
        return too_late(c);
    }
    if (questions > SPINS) {
        usleep(PAUSE_US);
    } else if (questions % 16 == 15) {
        sched_yield();
    }
    return 0;
}

static int wait_until_taken(struct cmn_nccl_state *c, ncclResult_t code)
{
    ncclResult_t state = ncclInProgress;

    if (cmn_nccl_bad(code)) {
        return cmn_nccl_failed(c, code);
    }
    for (int i = 0; state == ncclInProgress; i++) {
        if (ask(c, i, &state)) {
            return -1;
        }
    }
    return 0;
}

int cmn_nccl_taken(struct cmn_nccl_state *c, ncclResult_t code)
{
    int result;

    cmn_status_wait_begin();
    result = wait_until_taken(c, code);
    cmn_status_wait_end();
    return result;
}

static int wait_until_finished(struct cmn_nccl_state *c)
{
    cudaError_t code = cudaEventRecord(c->done, c->stream);
    ncclResult_t state;

    if (code != cudaSuccess) {
        return cmn_nccl_failed_cuda(c, code, "cudaEventRecord");
    }
    for (int i = 0; (code = cudaEventQuery(c->done)) != cudaSuccess; i++) {
        if (code != cudaErrorNotReady) {
            return cmn_nccl_failed_cuda(c, code, "cudaEventQuery");
        }
        if (ask(c, i, &state)) {
            return -1;
        }
    }
    return 0;
}

int cmn_nccl_finished(struct cmn_nccl_state *c)
{
    int result;

    cmn_status_wait_begin();
    result = wait_until_finished(c);
    cmn_status_wait_end();
    return result;
}

int cmn_nccl_starts(struct cmn_nccl_state *c, const char *what, size_t n)
{
    snprintf(c->what, sizeof c->what, "%s of %zu floats", what, n);
    c->begin = cmn_clock();
    return c->failed ? cmn_fail("nccl: %s: %s: the communicator was given up before",
                                c->group->name, c->what)
                     : 0;
}

int cmn_nccl_orders(struct cmn_nccl_state *c)
{
    cudaError_t code = cudaEventRecord(c->ready, cudaStreamLegacy);

    if (code == cudaSuccess) {
        code = cudaStreamWaitEvent(c->stream, c->ready, 0);
    }
    return code == cudaSuccess ? 0 : cmn_nccl_failed_cuda(c, code, "cudaStreamWaitEvent");
}

#endif
