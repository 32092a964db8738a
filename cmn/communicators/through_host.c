#include "communicators/through_host.h"

#include <sched.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "mpi/device.h"

/* The floats that one begin has added. The range ends at float `end`; its copy to the host has
 * ended when the event `copied` (a cudaEvent_t) is reached. */
struct range {
    size_t end;
    void *copied;
};

struct cmn_through_host {
    const struct cmn_communicator *inner;
    void *self;
    struct cmn_topology topology; /* a copy with device = -1 */
    struct cmn_options options;
    int in_background; /* whether inner can exchange in the background */

    void *stream, *returned; /* stream of the copies; event behind the copy back to the GPU */
    float *host;             /* page-locked, `room` floats, inner's or (is_ours) allocated here */
    size_t room;
    int is_ours;
    struct cmn_exchange on_gpu, on_host; /* the exchange, and its image on the host */
    struct cmn_span *tensor;             /* the tensors of on_host */

    /* Of this exchange: the floats whose copy was queued, in `out` ranges; inner has begun the
     * first `begun` of these. */
    size_t copied;
    struct range *range;
    int ranges, out, begun;
};

int cmn_through_host_open(struct cmn_through_host **through, const struct cmn_communicator *inner,
                          const struct cmn_topology *t, const struct cmn_options *o)
{
    struct cmn_through_host *h = *through = cmn_calloc(1, sizeof *h);

    h->inner = inner;
    h->topology = *t;
    h->topology.device = -1;
    h->options = *o;
    h->options.intra = CMN_INTRA_AUTO; /* on GPUs CMN_DEBUG_INTRA=mpi selects the host */
    if (inner->open(&h->self, inner, &h->topology, &h->options)) {
        return -1;
    }
    h->in_background = inner->begin && !(inner->no_begin && inner->no_begin(h->self));
    h->stream = cmn_device_stream_open();
    return 0;
}

static void release_room(struct cmn_through_host *h)
{
    if (h->host) { /* inner owns the memory that is not ours until its close */
        (h->is_ours ? cmn_device_host_free : cmn_device_unlock)(h->host);
    }
    h->host = NULL;
}

int cmn_through_host_room(struct cmn_through_host *h, size_t floats)
{
    if (h->topology.size == 1 || floats < h->room) {
        return 0;
    }
    release_room(h);
    h->room = floats + 1;
    if (h->inner->memory && h->inner->memory(h->self, h->room, &h->host)) {
        return -1;
    }
    h->is_ours = !h->host;
    return h->is_ours ? cmn_device_host_memory(&h->host, h->room)
                      : cmn_device_lock(h->host, h->room);
}

/* Collective. Lays out the image of an exchange, and opens what inner needs for it, so that a
 * checkpoint can be read into inner's state. */
static void prepare(struct cmn_through_host *h, const struct cmn_exchange *x)
{
    const struct cmn_exchange *b = &h->on_gpu;
    struct cmn_span *before = h->tensor;

    h->on_host.images = x->images;
    if (b->block.data == x->block.data && b->block.n == x->block.n && b->tensor == x->tensor &&
        b->tensors == x->tensors && b->metrics.n == x->metrics.n) {
        return;
    }
    if (cmn_through_host_room(h, x->block.n + x->metrics.n)) {
        cmn_fail_in("through the host");
        cmn_fatal_reason();
    }
    h->tensor = cmn_calloc((size_t)x->tensors + 1, sizeof *h->tensor);
    free(before); /* not earlier: inner recognizes an exchange by its addresses */
    for (int i = 0; i < x->tensors; i++) {
        h->tensor[i] = x->tensor[i];
        h->tensor[i].data = h->host + (x->tensor[i].data - x->block.data);
    }
    h->on_gpu = *x;
    h->on_host = (struct cmn_exchange){.tensor = h->tensor,
                                       .tensors = x->tensors,
                                       .block = {.data = h->host, .n = x->block.n},
                                       .metrics = {h->host + x->block.n, x->metrics.n, 0},
                                       .images = x->images};
    if (h->in_background) {
        h->inner->begin(h->self, &h->on_host, 0);
    }
}

/* Queues the copy of the floats below `upto`, behind the work that Darknet has queued so far. */
static void copy_out(struct cmn_through_host *h, size_t upto)
{
    struct range *r;

    if (upto <= h->copied) {
        return;
    }
    if (h->out == h->ranges) {
        h->range = cmn_realloc(h->range, (size_t)h->ranges + 1, sizeof *h->range);
        h->range[h->ranges++] = (struct range){0};
    }
    r = &h->range[h->out++];
    r->end = upto;
    cmn_device_follow(h->stream, cmn_device_stream());
    cmn_device_copy_beside(h->stream, h->host + h->copied, h->on_gpu.block.data + h->copied,
                           upto - h->copied, 1, &r->copied);
    h->copied = upto;
}

void cmn_through_host_begin(struct cmn_through_host *h, const struct cmn_exchange *x, size_t upto)
{
    if (h->topology.size > 1) {
        prepare(h, x);
        copy_out(h, upto);
        cmn_through_host_poll(h);
    }
}

/* Begins the ranges whose copies have ended. All ranks begin the same ranges in the same order,
 * whenever their copies end. */
void cmn_through_host_poll(struct cmn_through_host *h)
{
    for (; h->begun < h->out && cmn_device_reached(h->range[h->begun].copied); h->begun++) {
        if (h->in_background) {
            h->inner->begin(h->self, &h->on_host, h->range[h->begun].end);
        }
    }
    if (h->in_background) {
        h->inner->poll(h->self);
    }
}

/* Does other work between two polls of a copy, and ends the job after cmn_timeout. */
static void work(struct cmn_through_host *h, double since)
{
    cmn_through_host_poll(h);
    sched_yield();
    if (cmn_status_timed_out(cmn_clock() - since, h->options.timeout)) {
        cmn_fatal("a copy between GPU and CPU did not end in %ld s (cmn_timeout)",
                  h->options.timeout);
    }
}

void cmn_through_host_allreduce(struct cmn_through_host *h, const struct cmn_exchange *x)
{
    size_t floats = x->block.n + x->metrics.n;
    double since = cmn_clock();

    if (h->topology.size == 1) {
        return;
    }
    prepare(h, x);
    copy_out(h, floats);
    while (h->begun < h->out) {
        work(h, since);
    }
    h->inner->allreduce(h->self, &h->on_host);
    cmn_device_copy_beside(h->stream, x->block.data, h->host, floats, 0, &h->returned);
    for (since = cmn_clock(); !cmn_device_reached(h->returned);) {
        work(h, since);
    }
    h->copied = 0;
    h->out = h->begun = 0;
}

int cmn_through_host_state(struct cmn_through_host *h, int i, struct cmn_state *state)
{
    return h->inner->state ? h->inner->state(h->self, i, state) : 0;
}

void cmn_through_host_close(struct cmn_through_host *h)
{
    if (!h) {
        return;
    }
    release_room(h);
    h->inner->close(h->self);
    for (int i = 0; i < h->ranges; i++) {
        cmn_device_event_close(h->range[i].copied);
    }
    cmn_device_event_close(h->returned);
    cmn_device_stream_close(h->stream);
    free(h->range);
    free(h->tensor);
    free(h);
}
