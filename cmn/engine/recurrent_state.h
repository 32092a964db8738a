/* What recurrent layers carry from one step to the next. All local and blocking; what fails
 * ends the job. */
#ifndef CMN_RECURRENT_STATE_H
#define CMN_RECURRENT_STATE_H

#include <stddef.h>

struct cmn_net;

/* For each sequence n floats. The network's. */
struct cmn_recurrent_state {
    int layer, which; /* number of the layer, and of the state in it */
    float *at;        /* in the host's memory */
    float *device;    /* where the layer takes it from; NULL: from there */
    size_t n, sequences;
};

/* Entry i of the list; 0 when there are no more. */
int cmn_recurrent_state_at(const struct cmn_net *net, int i, struct cmn_recurrent_state *state);

/* All of it, from the GPU to the host's memory, or back. Nothing to do on the CPU. */
void cmn_recurrent_state_pull(const struct cmn_net *net);
void cmn_recurrent_state_push(const struct cmn_net *net);

/* Sets all of it to 0, as in a network that was just read. */
void cmn_recurrent_state_zero(const struct cmn_net *net);

/* The same. Returns a copy of what it was, which the caller frees by restoring it. */
float *cmn_recurrent_state_clear(const struct cmn_net *net);
void cmn_recurrent_state_restore(const struct cmn_net *net, float *saved);

/* The state of this rank's first `sequences` sequences becomes 0, as at the begin of a
 * sequence. */
void cmn_recurrent_state_reset(struct cmn_net *net, int sequences);

#endif
