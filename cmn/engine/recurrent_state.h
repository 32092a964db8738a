/* The state that recurrent layers carry from one step to the next. All functions are local and
 * blocking; an error ends the job. */
#ifndef CMN_RECURRENT_STATE_H
#define CMN_RECURRENT_STATE_H

#include <stddef.h>

struct cmn_net;

/* One state of one layer: n floats for each sequence. The network owns the memory. */
struct cmn_recurrent_state {
    int layer, which; /* index of the layer, and of the state in it */
    float *at;        /* in the host's memory */
    float *device;    /* the GPU's copy, which the layer uses; NULL: the layer uses `at` */
    size_t n, sequences;
};

/* Sets *state to entry i of the list of all states. Returns 0 if there is no entry i, else 1. */
int cmn_recurrent_state_at(const struct cmn_net *net, int i, struct cmn_recurrent_state *state);

/* pull copies all states from the GPU to the host, push from the host to the GPU. They do nothing
 * on the CPU. */
void cmn_recurrent_state_pull(const struct cmn_net *net);
void cmn_recurrent_state_push(const struct cmn_net *net);

/* Sets all states to 0, as in a network that was just read. */
void cmn_recurrent_state_zero(const struct cmn_net *net);

/* clear does the same as cmn_recurrent_state_zero() and returns a copy of the old states. restore
 * copies them back and frees the copy. */
float *cmn_recurrent_state_clear(const struct cmn_net *net);
void cmn_recurrent_state_restore(const struct cmn_net *net, float *saved);

/* Sets the state of this rank's first `sequences` sequences to 0, as at the begin of a sequence. */
void cmn_recurrent_state_reset(struct cmn_net *net, int sequences);

#endif
