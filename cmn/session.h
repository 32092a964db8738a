/* What the module knows about the job. One per process, filled by cmn.c; the rest reads it. */
#ifndef CMN_SESSION_H
#define CMN_SESSION_H

#include "commands.h"
#include "communicator.h"
#include "evaluator.h"
#include "options.h"
#include "topology.h"

struct cmn_session {
    int on; /* -cmn was given and MPI is up */
    const struct cmn_command
        *command; /* NULL without one: a program of somebody's own, or a tool */
    struct cmn_topology topology;
    struct cmn_options options;
    unsigned long seed; /* options.seed, or what rank 0 drew */
    const struct cmn_communicator *communicator;
    const char *communicator_why; /* why this one */
    void *exchange;               /* the communicator's self */

    /* from the .data file */
    char backup[CMN_TEXT];
    char train_list[CMN_TEXT];
    size_t train_images;        /* 0: not known yet */
    struct cmn_valid_set valid; /* images is 0 when there is no list */

    int stop_signal; /* number of the signal that ended the training, or 0 */
};

/* All return 0, or -1 with a reason. */

/* Collective. MPI is up: finds this rank's place and its share of the cores. */
int cmn_session_open(struct cmn_session *s);

/* Collective. All keys are set: seed, random streams, output, memory for images, communicator. */
int cmn_session_configure(struct cmn_session *s);

/* Collective. Values of the .data file, NULL where it has none (then Darknet's own default, but for
 * `backup`, which is not made unasked): checks the backup folder (made when
 * it is missing) and reads the validation list. */
int cmn_session_data(struct cmn_session *s, const char *backup, const char *train,
                     const char *valid, const char *labels, int classes, int top);

/* Collective. */
void cmn_session_close(struct cmn_session *s);

#endif
