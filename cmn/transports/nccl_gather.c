/* Gathers of the NCCL transport, ordered with Darknet's own work on the GPU and with the background
 * sums. */
#ifdef CMN_NCCL

#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "transports/nccl_internal.h"

static struct gather *next_gather(struct nccl *c)
{
    struct gather *g;

    if (c->gathers == c->gathers_room) {
        c->gather = cmn_realloc(c->gather, (size_t)c->gathers_room + 1, sizeof *c->gather);
        g = &c->gather[c->gathers_room++];
        cmn_nccl_check_cuda(c, cudaEventCreateWithFlags(&g->ready, cudaEventDisableTiming),
                            "cudaEventCreate");
        cmn_nccl_check_cuda(c, cudaEventCreateWithFlags(&g->done, cudaEventDisableTiming),
                            "cudaEventCreate");
    }
    return &c->gather[c->gathers++];
}

void cmn_nccl_gather(void *self, float *to, const float *from, size_t n)
{
    struct nccl *c = self;
    struct gather *g;

    for (struct nccl *other = cmn_nccl_opened; other; other = other->next) {
        if (other->begun) {
            cmn_nccl_advance(other, 1, 0);
        }
    }
    cmn_nccl_start(c, "allgather", n);
    g = next_gather(c);
    cmn_nccl_check_cuda(c, cudaEventRecord(g->ready, cudaStreamLegacy), "cudaEventRecord");
    cmn_nccl_check_cuda(c, cudaStreamWaitEvent(c->stream, g->ready, 0), "cudaStreamWaitEvent");
    cmn_nccl_check(
        c, cmn_nccl_await_taken(c, ncclAllGather(from, to, n, ncclFloat32, c->comm, c->stream)));
    cmn_nccl_check_cuda(c, cudaEventRecord(g->done, c->stream), "cudaEventRecord");
    cmn_nccl_check_cuda(c, cudaStreamWaitEvent(cudaStreamLegacy, g->done, 0),
                        "cudaStreamWaitEvent");
}

static void await_event(struct nccl *c, cudaEvent_t event, void (*idle)(void *self), void *idler)
{
    c->began = cmn_clock();
    cmn_nccl_await_event(c, event, idle, idler);
}

/* The gathers are awaited one after the other, each in two steps: until this rank's GPU has reached
 * a gather, the rank does not count as waiting for other ranks. */
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

void cmn_nccl_free_gathers(struct nccl *c)
{
    for (int i = 0; i < c->gathers_room; i++) {
        cmn_nccl_destroy(c->gather[i].ready);
        cmn_nccl_destroy(c->gather[i].done);
    }
    free(c->gather);
}

#endif
