/* What recurrent layers carry from one step to the next. */
#include "engine/gradients.h"

#include "darknet.h"

#include "mpi/device.h"
#include "engine/gradients_gpu.h"
#include "base/log.h"

enum { CARRIED = 2 };

/* On the GPU a simple recurrent layer goes on, too; on the CPU each step of its training begins with 0. */
static int carried(const struct network *net, const layer *l,
                   struct cmn_recurrent_state at[CARRIED])
{
    int n = 0;

    (void)net;
#ifdef GPU
    if (cmn_gradients_on_gpu(net)) {
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

int cmn_recurrent_state_at(const struct network *net, int i, struct cmn_recurrent_state *hidden)
{
    for (int k = 0; k < net->n; k++) {
        const layer *l = &net->layers[k];
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

int cmn_recurrent_state_copy(const struct network *net, enum cmn_recurrent_direction way)
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
