/* What recurrent layers carry from one step to the next. */
#include "engine/gradients.h"

#include <stdlib.h>
#include <string.h>

#include "darknet.h"

#include "mpi/device.h"
#include "engine/darknet_net.h"
#include "base/log.h"

enum { CARRIED = 2 };

/* On the GPU a simple recurrent layer goes on, too; on the CPU each step of its training begins with 0. */
static int carried(const struct cmn_net *net, const layer *l,
                   struct cmn_recurrent_state at[CARRIED])
{
    int n = 0;

    (void)net;
#ifdef GPU
    if (cmn_net_on_gpu(net)) {
        if (l->type == RNN || l->type == GRU) {
            at[n++] = (struct cmn_recurrent_state){.at = l->state, .device = l->state_gpu};
        } else if (l->type == LSTM) {
            at[n++] = (struct cmn_recurrent_state){.at = l->h_cpu, .device = l->h_gpu};
            at[n++] = (struct cmn_recurrent_state){.at = l->c_cpu, .device = l->c_gpu};
        }
        return n;
    }
#endif
    if (l->type == GRU) {
        at[n++] = (struct cmn_recurrent_state){.at = l->state};
    } else if (l->type == LSTM) {
        at[n++] = (struct cmn_recurrent_state){.at = l->h_cpu};
        at[n++] = (struct cmn_recurrent_state){.at = l->c_cpu};
    }
    return n;
}

int cmn_recurrent_state_at(const struct cmn_net *net, int i, struct cmn_recurrent_state *hidden)
{
    for (int k = 0; k < cmn_network(net)->n; k++) {
        const layer *l = &cmn_network(net)->layers[k];
        struct cmn_recurrent_state at[CARRIED];
        int n = carried(net, l, at);
        if (i < n) {
            *hidden = at[i];
            hidden->layer = k;
            hidden->which = i;
            hidden->n = (size_t)l->outputs;
            hidden->sequences = (size_t)l->batch;
            return 1;
        }
        i -= n;
    }
    return 0;
}

int cmn_recurrent_state_copy(const struct cmn_net *net, enum cmn_recurrent_direction way)
{
    struct cmn_recurrent_state h;

    for (int i = 0; cmn_recurrent_state_at(net, i, &h); i++) {
        size_t n = h.n * h.sequences;
        if (h.device && (way == CMN_RECURRENT_READ ? cmn_device_read(h.at, h.device, n)
                                                   : cmn_device_write(h.device, h.at, n))) {
            return cmn_fail_in("layer %d, what it carries on", h.layer);
        }
    }
    return 0;
}

static size_t floats_of(const struct cmn_recurrent_state *h)
{
    return h->n * h->sequences;
}

float *cmn_recurrent_state_clear(const struct cmn_net *net)
{
    struct cmn_recurrent_state h;
    size_t n = 0;
    float *saved, *next;

    if (cmn_recurrent_state_copy(net, CMN_RECURRENT_READ)) {
        return NULL;
    }
    for (int i = 0; cmn_recurrent_state_at(net, i, &h); i++) {
        n += floats_of(&h);
    }
    next = saved = calloc(n ? n : 1, sizeof *saved);
    if (!saved) {
        cmn_fail("out of memory");
        return NULL;
    }
    for (int i = 0; cmn_recurrent_state_at(net, i, &h); next += floats_of(&h), i++) {
        memcpy(next, h.at, floats_of(&h) * sizeof *next);
        memset(h.at, 0, floats_of(&h) * sizeof *next);
    }
    if (cmn_recurrent_state_copy(net, CMN_RECURRENT_WRITE)) {
        free(saved);
        return NULL;
    }
    return saved;
}

int cmn_recurrent_state_restore(const struct cmn_net *net, float *saved)
{
    const float *next = saved;
    struct cmn_recurrent_state h;

    for (int i = 0; cmn_recurrent_state_at(net, i, &h); next += floats_of(&h), i++) {
        memcpy(h.at, next, floats_of(&h) * sizeof *next);
    }
    free(saved);
    return cmn_recurrent_state_copy(net, CMN_RECURRENT_WRITE);
}

void cmn_recurrent_state_reset(struct cmn_net *net, int sequences)
{
    for (int b = 0; b < sequences; b++) {
        reset_network_state(cmn_network(net), b);
    }
}
