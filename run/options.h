/* The command line of cmn-run. */
#ifndef CMN_RUN_OPTIONS_H
#define CMN_RUN_OPTIONS_H

#include "hosts.h"

struct cmn_run_options {
    struct cmn_hosts hosts;
    long ranks;   /* -n, 0 when hosts say it */
    long retries; /* without progress */
    long wait;    /* seconds for a machine that is gone */
    const char *journal;
    char **mpi;  /* words for mpiexec, NULL behind the last */
    char **word; /* the command, the same; the caller's */
};

/* 0; 1 when help was wanted and printed; -1 after saying what is wrong. */
int cmn_run_options_read(struct cmn_run_options *o, char **argv);

void cmn_run_options_free(struct cmn_run_options *o);

#endif
