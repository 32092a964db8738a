/* What the module knows of the job: one per process. hooks/ fills it, the rooms of trainer/ and
 * tools/ read it. */
#ifndef CMN_SESSION_H
#define CMN_SESSION_H

#include "communicators/communicator.h"
#include "config/commands.h"
#include "config/options.h"
#include "evaluators/classifier.h"
#include "evaluators/detector.h"
#include "mpi/topology.h"

struct cmn_report;

/* What a .data file says. A text that it lacks is NULL: Darknet's default applies then, but for
 * `backup`, whose folder is not made unasked. */
struct cmn_data_cfg {
    const char *backup, *train, *valid;
    const char *labels, *names; /* of a classifier's classes, of a detector's */
    int tag;                    /* a classifier's images have several tags: it reads no labels */
    const char *eval;           /* what an evaluation writes */
    int classes, top;
};

struct cmn_session {
    int on;                            /* -cmn was given, and MPI is up */
    const struct cmn_command *command; /* NULL for programs of people's own, and for tools */
    struct cmn_topology topology;
    struct cmn_options options;
    int starts_over;     /* -clear was given */
    long resumed_steps;  /* steps of earlier runs, by the checkpoint */
    unsigned long seed;  /* options.seed, or what rank 0 drew */
    char arithmetic[20]; /* cmn_exact: a hash of what computes here, the same on all ranks; or "" */
    int blas_threads;    /* cmn_exact: which a rank has for its products */
    const struct cmn_communicator *communicator;
    const char *communicator_why; /* why this one */
    void *exchange;               /* the communicator's self */

    char *cfg; /* the text of the one that Darknet has read last; NULL: none yet */

    /* From the .data file. */
    char backup[CMN_TEXT];
    char train_list[CMN_TEXT];
    size_t train_images;              /* 0: not known yet */
    char valid_list[CMN_TEXT];        /* empty: training without validation */
    char names[CMN_TEXT];             /* file with the names of the classes; empty: none */
    char eval[CMN_TEXT];              /* what `detector valid` writes; empty: not known */
    int classes;                      /* 0: the file does not say it */
    char classes_hash[20];            /* of a classifier's labels; empty: not known */
    struct cmn_labelled_images valid; /* for CMN_CLASSES; images is 0 when there is no list */
    struct cmn_box_set boxes;         /* the same for CMN_BOXES */

    /* Ranks that got SIGINT and SIGTERM, as all ranks know it after an exchange. */
    float interrupts, terminations;
    int stop_signal; /* the signal that ended the training, or 0 */

    struct cmn_report *report; /* rank 0 of a training that has begun; else NULL */
};

/* What is said of a .data file without `backup`, behind its name. */
#define CMN_NO_BACKUP "names no folder for weights: add a line backup=FOLDER"

/* Local, before MPI starts. Ends the process where a limit of the address space (ulimit -v) is too
 * small: Open MPI 4.1 crashes when it meets one inside MPI_Init. */
void cmn_session_check_space(void);

/* Collective, blocking. MPI is up: finds this rank's place and its share of the cores. */
void cmn_session_open(struct cmn_session *s);

/* Local, the same on all ranks. For a training: ends the job where two keys do not go together, or
 * one does not go with the command or with where it computes (config/pairs.h). */
void cmn_session_refuse_pairs(const struct cmn_session *s);

/* Collective, blocking. All keys are set: seed, random streams, output, memory for images,
 * communicator. */
void cmn_session_configure(struct cmn_session *s);

/* Collective, blocking. What an evaluation takes from the .data file: its names; ends the job where
 * a classifier's labels are fewer than its classes. */
void cmn_session_names(struct cmn_session *s, const struct cmn_data_cfg *d);

/* Collective, blocking. What the .data file says: checks the backup folder (makes it when it is
 * missing), keeps the rest, and reads what the command's answer needs (CMN_CLASSES: the validation
 * list and the labels). */
void cmn_session_data(struct cmn_session *s, const struct cmn_data_cfg *d);

/* Collective, blocking. */
void cmn_session_close(struct cmn_session *s);

#endif
