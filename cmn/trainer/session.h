/* The session: what this process knows of its job, and what it keeps for all of it. hooks/ fills it;
 * trainer/ and tools/ read it. */
#ifndef CMN_SESSION_H
#define CMN_SESSION_H

#include "communicators/communicator.h"
#include "config/commands.h"
#include "config/options.h"
#include "evaluators/classifier.h"
#include "evaluators/detector.h"
#include "mpi/topology.h"

struct cmn_report;
struct cmn_sums;
struct cmn_trainer;

/* The contents of a .data file. A missing text is NULL, and Darknet's default is used instead,
 * except for `backup`: that default folder is not made without being asked for. */
struct cmn_data_cfg {
    const char *backup, *train, *valid;
    const char *labels, *names; /* names of a classifier's classes, of a detector's classes */
    int tag;                    /* a classifier's images have several tags: it reads no labels */
    const char *eval;           /* format of an evaluation's results */
    int classes, top;
};

struct cmn_session {
    int on;                            /* this process takes part in a job, and MPI is up */
    const struct cmn_command *command; /* NULL in your own programs and in tools */
    struct cmn_topology topology;
    struct cmn_options options;
    int starts_over;          /* -clear was given */
    const char *save_weights; /* from the command line, before that of the .data file; or NULL */
    long resumed_steps;       /* steps of earlier runs, from the checkpoint */
    unsigned long seed;       /* options.seed, or the seed that rank 0 drew */
    char arithmetic[20]; /* cmn_exact: hash of the arithmetic here, the same on all ranks; or "" */
    int blas_threads;    /* cmn_exact: threads of a rank for its matrix products */
    const struct cmn_communicator *communicator;
    const char *communicator_why; /* why it was chosen */
    void *exchange;               /* the communicator's self */

    char *cfg; /* text of the cfg that Darknet has read last; NULL: none yet */

    /* From the .data file. */
    char backup[CMN_TEXT];
    char train_list[CMN_TEXT];
    size_t train_images;              /* 0: not known yet */
    char valid_list[CMN_TEXT];        /* empty: training without validation */
    char names[CMN_TEXT];             /* file with the names of the classes; empty: none */
    char eval[CMN_TEXT];              /* format of `detector valid`; empty: not known */
    int map_lines;                    /* of map= of the .data file, an evaluation's; 0: none */
    long mapped;                      /* the largest class that it leads to */
    int classes;                      /* 0: not in the file */
    char classes_hash[20];            /* hash of a classifier's labels; empty: not known */
    char valid_hash[20];              /* hash of the validation list; empty: there is none */
    struct cmn_labelled_images valid; /* for CMN_CLASSES; its `images` is 0 without a list */
    struct cmn_box_set boxes;         /* the same for CMN_BOXES */

    int stop_signal; /* the signal that ended the training, or 0 */

    struct cmn_trainer *trainer; /* of the network that the job trains; NULL: none */
    int evaluating;              /* Darknet's trainer evaluates that network now */
    struct cmn_report *report;   /* rank 0 of a training that has begun; else NULL */
    struct cmn_sums *sums;       /* of your own programs, over all ranks; NULL: not open */
};

/* The message about a .data file without `backup`; it follows the file's name. */
#define CMN_NO_BACKUP "names no folder for weights: add a line backup=FOLDER"

/* Local, before MPI starts. Ends the process if a limit of the address space (ulimit -v) or of a
 * file's size (ulimit -f) is too small: Open MPI 4.1 crashes or hangs when it reaches one in
 * MPI_Init. */
void cmn_session_check_limits(void);

/* Collective, blocking; MPI is up. Finds this rank's place in the topology and its share of the
 * cores. */
void cmn_session_open(struct cmn_session *s);

/* Local, the same on all ranks. For a training: ends the job if two keys do not go together, or if
 * a key does not go with the command or with CPU or GPU (config/pairs.h). */
void cmn_session_refuse_pairs(const struct cmn_session *s);

/* Collective, blocking; all keys are set. Sets up seed, random streams, output, image cache and
 * communicator. */
void cmn_session_configure(struct cmn_session *s);

/* Collective, blocking. Reads the names that an evaluation needs from the .data file; ends the job
 * if a classifier has fewer labels than classes. */
void cmn_session_names(struct cmn_session *s, const struct cmn_data_cfg *d);

/* Collective, blocking. Keeps what a training needs of the .data file: makes the backup folder if
 * it is missing, checks that it is writable, and reads what the command's answer needs
 * (CMN_CLASSES: the validation list and the labels; CMN_BOXES: the validation list). */
void cmn_session_data(struct cmn_session *s, const struct cmn_data_cfg *d);

/* Collective, blocking. Closes communicator, topology and image cache. */
void cmn_session_close(struct cmn_session *s);

#endif
