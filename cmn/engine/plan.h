/* What a tool asks of Darknet. */
#ifndef CMN_PLAN_H
#define CMN_PLAN_H

#include <stddef.h>

#include "trainer/session.h"

/* Collective, blocking. What Darknet's main does with -i: this rank computes on that GPU, or, with -1, on the CPU.
 * 0, or -1 with a reason. */
int cmn_plan_device(struct cmn_session *s, int device);

/* What a cfg means for a job. */
struct cmn_plan {
    int mine, all;    /* images of a pass: this rank's, all ranks' */
    int subdivisions; /* passes of a step */
    int tensors;      /* that are exchanged in a step */
    size_t floats;    /* their size */
    size_t flat;      /* floats of this rank's memory for them, padding and all */
};

/* Collective, blocking. Reads the keys of a cfg, opens the communicator, builds the network and forgets it
 * again. `s` is the job's. 0, or -1 with a reason; a cfg that Darknet refuses ends the job. */
int cmn_plan_cfg(struct cmn_session *s, const char *cfg, struct cmn_plan *plan);

#endif
