#include "trainer/sequences.h"

#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/memory.h"
#include "engine/recurrent_state.h"

void cmn_sequences_open(struct cmn_sequences *q, struct cmn_net *net, int groups)
{
    struct cmn_recurrent_state s;

    *q = (struct cmn_sequences){.net = net, .groups = groups, .current = -1};
    for (; cmn_recurrent_state_at(net, q->states, &s); q->states++) {
        if (q->states == CMN_SEQUENCE_STATES) {
            cmn_fatal("cmn_exact=on: a text is not trained with more than %d recurrent states: "
                      "take fewer layers",
                      CMN_SEQUENCE_STATES);
        }
        q->state[q->states] = cmn_calloc((size_t)groups * s.n * s.sequences, sizeof(float));
    }
}

void cmn_sequences_close(struct cmn_sequences *q)
{
    for (int i = 0; i < q->states; i++) {
        free(q->state[i]);
    }
    *q = (struct cmn_sequences){0};
}

static void copy(struct cmn_sequences *q, int from_net)
{
    struct cmn_recurrent_state s;

    for (int i = 0; cmn_recurrent_state_at(q->net, i, &s); i++) {
        size_t n = s.n * s.sequences;
        float *kept = q->state[i] + (size_t)q->current * n;
        memcpy(from_net ? kept : s.at, from_net ? s.at : kept, n * sizeof *kept);
    }
}

void cmn_sequences_store(struct cmn_sequences *q)
{
    if (q->groups && q->current >= 0) {
        copy(q, 1);
    }
}

void cmn_sequences_load(struct cmn_sequences *q)
{
    if (q->groups && q->current >= 0) {
        copy(q, 0);
    }
}

int cmn_sequences_next(struct cmn_sequences *q)
{
    cmn_sequences_store(q);
    q->current = q->groups ? (q->current + 1) % q->groups : 0;
    cmn_sequences_load(q);
    return q->current;
}
