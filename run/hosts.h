/* The machines of a run, and which of them are there. All local. */
#ifndef CMN_RUN_HOSTS_H
#define CMN_RUN_HOSTS_H

#include <stddef.h>

enum { CMN_HOST_NAME = 256, CMN_HOST_WHY = 256 };

struct cmn_host {
    char name[CMN_HOST_NAME];
    int slots;              /* ranks that it takes */
    int gone;               /* it did not answer when it was asked last */
    char why[CMN_HOST_WHY]; /* what its launcher said then */
};

struct cmn_hosts {
    struct cmn_host *host;
    int count; /* 0: mpiexec is to find its machines itself */
};

/* Adds the machines of "a:4,b:4"; without a number it is one rank, and those of a name that is there already are added to it. 0, or -1 after
 * saying what is wrong. */
int cmn_hosts_parse(struct cmn_hosts *h, const char *list);

/* The same from a hostfile of Open MPI: lines "NAME slots=N", and comments. */
int cmn_hosts_read(struct cmn_hosts *h, const char *file);

/* Those that are there, as mpiexec takes them. */
void cmn_hosts_print(const struct cmn_hosts *h, char *text, size_t bytes);

/* Ranks that those take which are there. */
int cmn_hosts_ranks(const struct cmn_hosts *h);

/* How many are gone. */
int cmn_hosts_gone(const struct cmn_hosts *h);

/* Blocking, up to CMN_ASK_SECONDS. Asks all of them at once, each by an mpiexec with these words that starts nothing there but `true`:
 * whatever reaches the machine for a job reaches it for this. Sets `gone` and `why`. 0; -1 when a signal
 * asked to stop meanwhile. */
enum { CMN_ASK_SECONDS = 20 };
int cmn_hosts_ask(struct cmn_hosts *h, char *const *mpi_words);

void cmn_hosts_free(struct cmn_hosts *h);

#endif
