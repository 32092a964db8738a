/* What the module knows about the job. One per process, filled by cmn.c; the rest reads it. */
#ifndef CMN_SESSION_H
#define CMN_SESSION_H

#include "communicator.h"
#include "evaluator.h"
#include "options.h"
#include "topology.h"

enum cmn_command { CMN_OTHER, CMN_CLASSIFIER_TRAIN, CMN_CLASSIFIER_VALID };

struct cmn_session {
    int on;                                /* -cmn was given and MPI is up */
    enum cmn_command command;
    struct cmn_topology topology;
    struct cmn_options options;
    unsigned long seed;                    /* options.seed, or what rank 0 drew */
    const struct cmn_communicator *communicator;
    void *exchange;                        /* the communicator's self */

    /* from the .data file */
    char backup[CMN_TEXT];
    char train_list[CMN_TEXT];
    size_t train_images;                   /* 0: not known yet */
    struct cmn_valid_set valid;            /* images is 0 when there is no list */

    int stop_signal;                       /* number of the signal that ended the training, or 0 */
};

#endif
