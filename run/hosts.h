/* The machines of a run, and which of them answer. All local. */
#ifndef CMN_RUN_HOSTS_H
#define CMN_RUN_HOSTS_H

enum { CMN_HOST_NAME = 256, CMN_HOST_WHY = 256 };

struct cmn_host {
    char name[CMN_HOST_NAME];
    int slots;              /* ranks that it takes */
    int gone;               /* it did not answer the last time */
    int wrong;              /* it did not, and will not before a person has put it right */
    char why[CMN_HOST_WHY]; /* what its launcher said then, or what to put right */
};

struct cmn_hosts {
    struct cmn_host *host;
    int count; /* 0: mpiexec finds its machines itself */
};

/* Adds the machines of "a:4,b:4". A machine without a number takes one rank; one that is named
 * twice takes the sum. */
void cmn_hosts_parse(struct cmn_hosts *h, const char *list);

/* The same from a hostfile of Open MPI: lines "NAME slots=N", and comments. */
void cmn_hosts_read(struct cmn_hosts *h, const char *file);

/* Those that answer, as mpiexec -host takes them. The caller frees. */
char *cmn_hosts_text(const struct cmn_hosts *h);

/* Ranks that they take; how many machines do not answer. */
int cmn_hosts_ranks(const struct cmn_hosts *h);
int cmn_hosts_gone(const struct cmn_hosts *h);
int cmn_hosts_wrong(const struct cmn_hosts *h); /* of those */

/* Blocks up to CMN_PROBE_SECONDS. Asks all machines at once, each by mpiexec with these options
 * (argv[0] included), which starts `sleep 1` there: whatever reaches the machine for a job reaches
 * it for this. Sets `gone`, `wrong` and `why`. 0; -1 when a signal asked to stop meanwhile, or
 * after saying why nothing can be started here. */
enum { CMN_PROBE_SECONDS = 20 };
int cmn_hosts_probe(struct cmn_hosts *h, char *const *mpiexec);

#endif
