/* Reads the command line of cmn-run. */
#ifndef CMN_RUN_OPTIONS_H
#define CMN_RUN_OPTIONS_H

#include "hosts.h"

struct cmn_run_options {
    struct cmn_hosts hosts;
    const char *hostfile, *discover; /* where the machines stand; NULL: not given */
    long interval; /* seconds from a start until machines that have changed may lead to another */
    long ranks;    /* -n; 0: not given */
    long retries;  /* attempts without progress after the first; -1: not given */
    long wait;     /* seconds for a machine that is gone */
    const char *journal;
    int journal_given;
    int dry_run;
    char **mpi; /* words for mpiexec, NULL behind the last */
    int mpi_names_machines;
    char **command; /* the same, part of argv */
};

/* Returns whether the machines are named. */
int cmn_run_options_list(const struct cmn_run_options *o);

/* Reads the command line. Prints the help, or what is wrong, and exits where there is nothing to
 * run. argv stays the caller's, and is changed. */
void cmn_run_options_read(struct cmn_run_options *o, int argc, char **argv);

#endif
