/* The command line of cmn-run. */
#ifndef CMN_RUN_OPTIONS_H
#define CMN_RUN_OPTIONS_H

#include "hosts.h"

struct cmn_run_options {
    struct cmn_hosts hosts;
    long ranks;   /* -n, 0 when the machines say it */
    long retries; /* attempts without progress after the first */
    long wait;    /* seconds for a machine that is gone */
    const char *journal;
    char **mpi;     /* words for mpiexec, NULL behind the last */
    char **command; /* the same, part of argv */
};

/* Reads the command line. Prints the help, or what is wrong, and exits where there is nothing to
 * run. argv stays the caller's, and is changed. */
void cmn_run_options_read(struct cmn_run_options *o, int argc, char **argv);

#endif
