/* The machines of a run, and which of them answer. All local. */
#ifndef CMN_RUN_HOSTS_H
#define CMN_RUN_HOSTS_H

#include <stdio.h>

enum { CMN_HOST_NAME = 256, CMN_HOST_WHY = 256 };

struct cmn_host {
    char name[CMN_HOST_NAME];
    int slots;               /* ranks that it takes */
    int gone;                /* it did not answer the last time, or was not asked yet */
    int wrong;               /* it did not, and will not before a person has put it right */
    char why[CMN_HOST_WHY];  /* what its launcher said then, or what to put right */
    char told[CMN_HOST_WHY]; /* the reason that people have been told while a training ran */
    int left;     /* it is not used until it has once not answered: it was asked to end */
    int runs;     /* ranks of the last attempt ran on it */
    int fresh;    /* it has come, and no attempt with it has written a checkpoint */
    int failures; /* attempts that failed while it was fresh; CMN_FAILURES: not used */
};
enum { CMN_FAILURES = 2 };

struct cmn_hosts {
    struct cmn_host *host;
    int count; /* 0: mpiexec finds its machines itself */
};

/* Adds the machines of "a:4,b:4". A machine without a number takes one rank; one that is named
 * twice takes the sum. */
void cmn_hosts_parse(struct cmn_hosts *h, const char *list);

/* Reads the same from lines "NAME slots=N" and comments, as a hostfile of Open MPI has them. `name`
 * is the file's, or what has printed them. 0, or -1 after saying what is wrong. */
int cmn_hosts_read(struct cmn_hosts *h, FILE *in, const char *name);

/* Makes h the machines of `list`, and keeps what is known of those that it had. New ones are
 * fresh, and gone until they are asked. */
void cmn_hosts_replace(struct cmn_hosts *h, const struct cmn_hosts *list);

/* Returns the machine that calls itself `name`, perhaps with its domain, or NULL. */
struct cmn_host *cmn_hosts_find(const struct cmn_hosts *h, const char *name);

/* Returns whether ranks run on it at the next start. */
int cmn_host_is_used(const struct cmn_host *h);

/* Those that are used, as mpiexec -host takes them. The caller frees. */
char *cmn_hosts_text(const struct cmn_hosts *h);

/* Ranks that they take; how many machines are gone. */
int cmn_hosts_ranks(const struct cmn_hosts *h);
int cmn_hosts_gone(const struct cmn_hosts *h);
int cmn_hosts_wrong(const struct cmn_hosts *h); /* of those */

/* Asks machines at once, each by mpiexec with these options (argv[0] included), which starts
 * `command` there: whatever reaches the machine for a job reaches it for this. `only_unused`: those
 * on which no rank runs. NULL after saying why nothing can be started here. */
enum { CMN_PROBE_SECONDS = 20 };
struct cmn_probes *cmn_probes_start(struct cmn_hosts *h, char *const *mpiexec, char *const *command,
                                    int only_unused);

/* Takes the answers that have come: sets `gone`, `wrong` and `why`. Returns whether there is nothing
 * to wait for. */
int cmn_probes_collect(void *probes);

/* Ends what runs, and frees. Where `late` is set, a machine without an answer has been away. */
void cmn_probes_end(struct cmn_probes *p, int late);

/* Blocks up to CMN_PROBE_SECONDS: asks all machines by `sleep 1`. 0; -1 when a signal asked to stop
 * meanwhile, or after saying why nothing can be started here. */
int cmn_hosts_probe(struct cmn_hosts *h, char *const *mpiexec);

#endif
