/* What the module knows about the job. One per process, filled by cmn.c; the rest reads it. */
#ifndef CMN_SESSION_H
#define CMN_SESSION_H

#include "config/commands.h"
#include "communicators/communicator.h"
#include "evaluators/detector.h"
#include "evaluators/classifier.h"
#include "config/options.h"
#include "mpi/topology.h"

/* What a .data file says. A text is NULL where it says nothing: then Darknet's own default counts, but for `backup`, which is
 * not made unasked. */
struct cmn_data_cfg {
    const char *backup, *train, *valid;
    const char *labels, *names; /* of a classifier's classes, of a detector's */
    int classes, top;
};

struct cmn_session {
    int on; /* -cmn was given and MPI is up */
    const struct cmn_command
        *command; /* NULL without one: a program of somebody's own, or a tool */
    struct cmn_topology topology;
    struct cmn_options options;
    int starts_over;    /* -clear was given */
    long went_on;       /* steps that were done before this run, and are in its checkpoint */
    unsigned long seed; /* options.seed, or what rank 0 drew */
    const struct cmn_communicator *communicator;
    const char *communicator_why; /* why this one */
    void *exchange;               /* the communicator's self */

    /* from the .data file */
    char backup[CMN_TEXT];
    char train_list[CMN_TEXT];
    size_t train_images;              /* 0: not known yet */
    char valid_list[CMN_TEXT];        /* empty: training without validation */
    char names[CMN_TEXT];             /* file with those of the classes; empty: none */
    int classes;                      /* as the file says; 0: it does not */
    struct cmn_labelled_images valid; /* for CMN_CLASSES; images is 0 when there is no list */
    struct cmn_box_set boxes;         /* the same for CMN_BOXES */

    int stop_signal; /* number of the signal that ended the training, or 0 */
};

/* All return 0, or -1 with a reason. */

/* Local, before MPI starts. Open MPI 4.1 crashes where a limit of the address space (ulimit -v) is met inside MPI_Init; too
 * small a limit is refused here. */
int cmn_session_space(void);

/* Collective. MPI is up: finds this rank's place and its share of the cores. */
int cmn_session_open(struct cmn_session *s);

/* Collective. All keys are set: seed, random streams, output, memory for images, communicator. */
int cmn_session_configure(struct cmn_session *s);

/* Collective. What the .data file says: checks the backup folder (made when it is missing), keeps the rest, and reads
 * what the command's answer needs (CMN_CLASSES: the validation list and the labels). */
int cmn_session_data(struct cmn_session *s, const struct cmn_data_cfg *d);

/* Collective. */
void cmn_session_close(struct cmn_session *s);

#endif
