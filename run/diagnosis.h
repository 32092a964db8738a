/* Says what became of an attempt, from the events of the ranks, what mpiexec says, and how mpiexec
 * ended. Pure. */
#ifndef CMN_RUN_DIAGNOSIS_H
#define CMN_RUN_DIAGNOSIS_H

#include "event.h"

enum { CMN_FATAL_TEXT = 1200 };

/* This says why nothing could be started on another machine, in the words of ssh, of a shell there,
 * or of Open MPI's daemon. */
struct cmn_unreached {
    const char *sentence,
        *and;               /* a line that has both, in any case of letters; `and` may be NULL */
    const char *why, *todo; /* for people; NULL: the line itself, nothing can be done here */
};

/* Returns the reason that a line names, or NULL. If it has `todo`, waiting does not help. */
const struct cmn_unreached *cmn_unreached_find(const char *line);

/* This has been seen of an attempt. */
struct cmn_observed {
    /* These come from the ranks' events. */
    int began;          /* a rank has written an event */
    int stop_heard;     /* the ranks know that they are to stop */
    int checkpoint;     /* this attempt has written a checkpoint */
    int ended;          /* rank 0 has written all, and ends */
    int start_timeout;  /* MPI did not come up: the network, or a process that hangs there */
    int locked;         /* processes of another job hold the backup folder */
    int error;          /* the first fatal message says that another attempt would not help */
    long resumed_from;  /* iteration of the checkpoint, or -1 */
    char reached[256];  /* how far the training has come, in the ranks' own words, or "" */
    char leaving[1024]; /* machines on which a rank was asked to end, each before a blank */
    char fatal[CMN_FATAL_TEXT]; /* the first fatal message, "rank 1 on b: …" */

    /* These come from mpiexec's sentences: only mpiexec knows which process died of which signal,
     * and which of its daemons is gone. The sentences are those of Open MPI 4 and 5. */
    int rank, signal;    /* this rank ended by this signal; 0: none did */
    char sentence[1024]; /* the sentence that says so, as far as it has come */
    int sentence_lines;
    char host[256];   /* the host of that rank, or of the daemon that was lost */
    int daemon_lost;  /* mpiexec has lost a machine, or could not reach one */
    int disconnected; /* MPI itself has ended a rank, as the connection to another one broke */
    int no_program;   /* the program or the current folder does not exist there */
    char missing[512], missing_on[256];    /* its name and host, where these were said */
    const struct cmn_unreached *unreached; /* why a machine was not reached, before any event */
    int not_started;                       /* mpiexec has started no rank at all, as it says */
    int other_launcher;                    /* it does not know Open MPI's options, as it says */
    int unread;                            /* mpiexec's standard output has no reader any more */
    int slurm_version;                     /* mpiexec says which version of Slurm it has found */
    int slurm;                             /* Slurm did not tell it, or did not start its daemons */
    int no_room;       /* a machine had no room for another process, pipe or file */
    int spoken;        /* there was a line that is not empty */
    char passing[256]; /* the line about Slurm or a machine without room */

    int refuted; /* a sentence as of mpiexec said that the job fails, and its ranks continued */
    int hung;    /* mpiexec did not end after a fault, and cmn-run ended it */
    int moves;   /* cmn-run has asked the ranks to end, as other machines are to be used */
    int stops;   /* requests to stop that cmn-run has passed on; after the second it kills ranks */
};

void cmn_observe_nothing(struct cmn_observed *o);
void cmn_observe_event(struct cmn_observed *o, const struct cmn_event *e);
void cmn_observe_mpiexec(struct cmn_observed *o, const char *line);

/* Must be called when the ranks continue long after a sentence that said that the job fails: a rank
 * has printed it, from an old log, or mpiexec has lost something that the ranks will name. */
void cmn_observe_life(struct cmn_observed *o);

/* Returns whether something has gone wrong that ends the job. */
int cmn_observed_fault(const struct cmn_observed *o);

/* Returns whether ranks were asked to save and to end, and one of them died before all was saved. */
int cmn_observed_unsaved(const struct cmn_observed *o);

/* Returns whether ranks may have run without any event: nobody knows what they have written. */
int cmn_observed_blind(const struct cmn_observed *o);

enum cmn_outcome {
    CMN_DONE,    /* the job has ended well */
    CMN_STOPPED, /* somebody asked for it */
    CMN_MOVES,   /* the ranks have ended, to continue on other machines */
    CMN_WRONG,   /* the next attempt would end that way, too: input, disk, a missing program */
    CMN_FAILED,  /* a rank or a machine failed: worth another attempt */
    CMN_CRASHED  /* a rank failed, perhaps through the program itself or its surroundings */
};

enum {
    CMN_FAILED_STATUS = 75, /* EX_TEMPFAIL: how the ranks end a job in which one of them failed */
    CMN_UNREAD = 128 + 13   /* nobody reads the job's output; as shells have it for SIGPIPE */
};

struct cmn_diagnosis {
    enum cmn_outcome outcome;
    int status;                      /* 0 to 255: the job's own */
    char what[CMN_FATAL_TEXT + 400]; /* for people */
};

/* `status` is waitpid()'s of mpiexec; `stop` the signal that asked cmn-run to stop, or 0; `again`:
 * other attempts came before. */
struct cmn_diagnosis cmn_diagnose(const struct cmn_observed *o, int status, int stop, int again);

#endif
