#include "engine/recurrent_state.h"

#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "engine/darknet_net.h"
#include "engine/darknet_tree.h"
#include "mpi/device.h"

enum { STATES = 3 }; /* the most states of a layer */

/* Lists the states of a layer and returns their number. On the GPU a simple recurrent layer keeps
 * its state, too; on the CPU each step of its training begins with 0. */
static int states_of(const struct cmn_net *net, const layer *l,
                     struct cmn_recurrent_state state[STATES])
{
    const struct cmn_tree_layer is = cmn_tree_layer(l);
    int on_gpu = cmn_net_on_gpu(net), n = 0;

#ifdef GPU
#define STATE(host, gpu) \
    ((struct cmn_recurrent_state){.at = (host), .device = on_gpu ? (gpu) : NULL})
#else
#define STATE(host, gpu) ((struct cmn_recurrent_state){.at = (host)})
#endif
    if (is.keeps_outputs) {
        state[n++] = STATE(l->prev_state_cpu, l->prev_state_gpu);
    }
    if (l->type == GRU || (l->type == RNN && on_gpu)) {
        state[n++] = STATE(l->state, l->state_gpu);
    }
    if (is.is_lstm) {
        state[n++] = STATE(l->h_cpu, l->h_gpu);
        state[n++] = STATE(l->c_cpu, l->c_gpu);
    }
    if (is.is_lstm && cmn_tree.keeps_cell_deltas) {
        state[n++] = STATE(l->dc_cpu, l->dc_gpu);
    }
#undef STATE
    return n;
}

int cmn_recurrent_state_at(const struct cmn_net *net, int i, struct cmn_recurrent_state *state)
{
    const network *n = cmn_network(net);

    for (int k = 0; k < n->n; k++) {
        const layer *l = &n->layers[k];
        struct cmn_recurrent_state of_layer[STATES];
        int states = states_of(net, l, of_layer);
        if (i < states) {
            *state = of_layer[i];
            state->layer = k;
            state->which = i;
            state->n = (size_t)l->outputs;
            /* In a layer that keeps outputs, `batch` includes the time steps; in all others it does
             * not. */
            state->sequences =
                (size_t)(cmn_tree_layer(l).keeps_outputs ? l->batch / l->steps : l->batch);
            return 1;
        }
        i -= states;
    }
    return 0;
}

static size_t floats_of(const struct cmn_recurrent_state *s)
{
    return s->n * s->sequences;
}

static void transfer(const struct cmn_net *net, int to_host)
{
    struct cmn_recurrent_state s;

    for (int i = 0; cmn_recurrent_state_at(net, i, &s); i++) {
        if (s.device && (to_host ? cmn_device_read(s.at, s.device, floats_of(&s))
                                 : cmn_device_write(s.device, s.at, floats_of(&s)))) {
            cmn_fail_in("recurrent state of layer %d", s.layer);
            cmn_fatal_reason();
        }
    }
}

void cmn_recurrent_state_pull(const struct cmn_net *net)
{
    transfer(net, 1);
}

void cmn_recurrent_state_push(const struct cmn_net *net)
{
    transfer(net, 0);
}

static size_t all_floats(const struct cmn_net *net)
{
    struct cmn_recurrent_state s;
    size_t n = 0;

    for (int i = 0; cmn_recurrent_state_at(net, i, &s); i++) {
        n += floats_of(&s);
    }
    return n;
}

/* A simple recurrent layer whose state matters only in predictions, as each step of a training sets
 * it to 0: rnn on the CPU, crnn on both. */
static void zero_simple(const struct cmn_net *net, const layer *l, int number)
{
    size_t n = (size_t)(l->type == CRNN ? l->hidden : l->type == RNN ? l->outputs : 0);

    if (!n) {
        return;
    }
    n *= (size_t)l->batch;
    memset(l->state, 0, n * sizeof *l->state);
    (void)net;
    (void)number;
#ifdef GPU
    if (cmn_net_on_gpu(net) && cmn_device_write(l->state_gpu, l->state, n)) {
        cmn_fail_in("recurrent state of layer %d", number);
        cmn_fatal_reason();
    }
#endif
}

void cmn_recurrent_state_zero(const struct cmn_net *net)
{
    struct cmn_recurrent_state s;

    for (int i = 0; cmn_recurrent_state_at(net, i, &s); i++) {
        memset(s.at, 0, floats_of(&s) * sizeof *s.at);
    }
    cmn_recurrent_state_push(net);
    for (int i = 0; i < cmn_network(net)->n; i++) {
        zero_simple(net, &cmn_network(net)->layers[i], i);
    }
}

float *cmn_recurrent_state_clear(const struct cmn_net *net)
{
    float *saved = cmn_malloc(all_floats(net) + 1, sizeof *saved), *next = saved;
    struct cmn_recurrent_state s;

    cmn_recurrent_state_pull(net);
    for (int i = 0; cmn_recurrent_state_at(net, i, &s); next += floats_of(&s), i++) {
        memcpy(next, s.at, floats_of(&s) * sizeof *next);
    }
    cmn_recurrent_state_zero(net);
    return saved;
}

void cmn_recurrent_state_restore(const struct cmn_net *net, float *saved)
{
    const float *next = saved;
    struct cmn_recurrent_state s;

    for (int i = 0; cmn_recurrent_state_at(net, i, &s); next += floats_of(&s), i++) {
        memcpy(s.at, next, floats_of(&s) * sizeof *next);
    }
    cmn_recurrent_state_push(net);
    free(saved);
}

void cmn_recurrent_state_reset(struct cmn_net *net, int sequences)
{
    for (int b = 0; b < sequences; b++) {
        reset_network_state(cmn_network(net), b);
    }
}
