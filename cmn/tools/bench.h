/* The command line of `darknet cmn bench`. It is separate from the benchmark so that tests can call
 * it. */
#ifndef CMN_BENCH_H
#define CMN_BENCH_H

#include <stddef.h>

#include "tools/candidate.h"

enum { CMN_BENCH_SIZES = 32 };

struct cmn_bench {
    const struct cmn_session *session;
    size_t size[CMN_BENCH_SIZES]; /* in floats */
    int sizes;
    const char *name[CMN_CANDIDATES];
    int names;
    int named;      /* -communicators is set: a candidate that cannot run ends the job */
    int iterations; /* 0: as many as fit into the time */

    struct cmn_candidate candidate[CMN_CANDIDATES]; /* those that can run */
    int candidates;
};

/* Local. Fills *b from the command line and the defaults. Its session must be set, and the rest
 * zeroed. Ends the job if an argument is wrong. */
void cmn_bench_arguments(struct cmn_bench *b, int argc, char **argv);

#endif
