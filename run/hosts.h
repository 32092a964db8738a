/* Keeps the machines of a run, and what is known of them. All local. */
#ifndef CMN_RUN_HOSTS_H
#define CMN_RUN_HOSTS_H

enum { CMN_HOST_NAME = 256, CMN_HOST_WHY = 256 };
enum { CMN_GOOD = -1, CMN_FAILURES = 2 };

/* This says how a machine has answered when it was asked last. */
enum cmn_gone {
    CMN_HOST_HERE,
    CMN_HOST_GONE, /* it has not, or was not asked yet */
    CMN_HOST_WRONG /* it has not, and will not before a person has put it right */
};

struct cmn_host {
    char name[CMN_HOST_NAME];
    int slots; /* ranks that it takes */
    enum cmn_gone gone;
    char why[CMN_HOST_WHY];  /* what its launcher said then, or what to put right */
    char told[CMN_HOST_WHY]; /* the reason that people have been told */
    int left;     /* it is not used until it has once not answered: it was asked to end */
    int runs;     /* ranks of the last attempt ran on it */
    int failures; /* attempts that failed since it has come; CMN_FAILURES: it is not used; CMN_GOOD:
                   * it was there at the start, or an attempt with it has written a checkpoint */
};

struct cmn_hosts {
    struct cmn_host *host;
    int count; /* 0: mpiexec finds its machines itself */
};

/* Adds the machines of "a:4,b:4". A machine without a number takes one rank; one that is named
 * twice takes the sum. */
void cmn_hosts_parse(struct cmn_hosts *h, const char *list);

/* Reads the same from lines "NAME slots=N" and comments, as a hostfile of Open MPI has them. `name`
 * is the file's, or what has printed them. Returns 0, or -1 after saying what is wrong. */
int cmn_hosts_read(struct cmn_hosts *h, const char *text, const char *name);

/* Makes h the machines of `list`, which it takes, and keeps what is known of those that it had. New
 * ones are gone until they are asked, unless h was empty. */
void cmn_hosts_replace(struct cmn_hosts *h, const struct cmn_hosts *list);

/* Returns the machine that calls itself `name`, perhaps with its domain, or NULL. */
struct cmn_host *cmn_hosts_find(const struct cmn_hosts *h, const char *name);

/* Returns whether ranks run on it at the next start. */
int cmn_host_is_used(const struct cmn_host *h);

/* Returns the machines that are used, as mpiexec -host takes them. The caller frees the text. */
char *cmn_hosts_text(const struct cmn_hosts *h);

/* Returns whether they are others than those of such a text, or take other numbers of ranks. The
 * order does not matter. */
int cmn_hosts_differ(const struct cmn_hosts *h, const char *text);

/* Returns how many ranks they take. */
int cmn_hosts_ranks(const struct cmn_hosts *h);

/* Returns the worst that is known of one of them. */
enum cmn_gone cmn_hosts_gone(const struct cmn_hosts *h);

/* Says which are gone, why, and what follows from that. With `news` only those of which people have
 * not been told this reason. */
void cmn_hosts_report(struct cmn_hosts *h, const char *then, int news);

#endif
