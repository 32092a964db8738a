/* Sequences of a text with cmn_exact: each micro-batch of a step has its own, which it continues from
 * step to step, whichever rank computes it. */
#ifndef CMN_SEQUENCES_H
#define CMN_SEQUENCES_H

#include <stddef.h>

#include "engine/net.h"

enum { CMN_SEQUENCE_STATES = 64 }; /* of all layers, at most */

struct cmn_sequences {
    struct cmn_net *net;
    int groups;  /* micro-batches of this rank in a step; 0: sequences are the network's alone */
    int current; /* the one whose state the network has; -1: none yet */
    int states;
    /* State i of all groups (engine/recurrent_state.h): one group behind the other. */
    float *state[CMN_SEQUENCE_STATES];
};

/* Local. The state of so many groups begins with 0. */
void cmn_sequences_open(struct cmn_sequences *q, struct cmn_net *net, int groups);
void cmn_sequences_close(struct cmn_sequences *q);

/* Local. The network gets the state of the next group, after the last one of the first one, and keeps
 * that of the group before. Returns the group's number. */
int cmn_sequences_next(struct cmn_sequences *q);

/* Local. What is kept becomes, for the current group too, what the network has; and the other way. */
void cmn_sequences_store(struct cmn_sequences *q);
void cmn_sequences_load(struct cmn_sequences *q);

#endif
