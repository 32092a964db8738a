/* The sequences of a text with cmn_exact: each micro-batch of a step has its own sequences, which
 * it continues in the next step, whichever rank computes it. */
#ifndef CMN_SEQUENCES_H
#define CMN_SEQUENCES_H

#include <stddef.h>

#include "engine/net.h"

enum { CMN_SEQUENCE_STATES = 64 }; /* upper limit, of all layers together */

struct cmn_sequences {
    struct cmn_net *net;
    int groups;  /* this rank's micro-batches in a step; 0: not used */
    int current; /* the group whose state the network has; -1: none yet */
    int states;
    /* State i (engine/recurrent_state.h) of all groups, one group behind the other. */
    float *state[CMN_SEQUENCE_STATES];
};

/* Local. Prepares `groups` groups, whose state is 0 at the start. */
void cmn_sequences_open(struct cmn_sequences *q, struct cmn_net *net, int groups);
void cmn_sequences_close(struct cmn_sequences *q);

/* Local. Saves the state of the current group and gives the network that of the next one; the first
 * group follows the last. Returns the number of that group. */
int cmn_sequences_next(struct cmn_sequences *q);

/* Local. Copy the current group's state from the network to q (store), and back (load). */
void cmn_sequences_store(struct cmn_sequences *q);
void cmn_sequences_load(struct cmn_sequences *q);

#endif
