/* The command line of `darknet cmn bench`, apart from the benchmark itself for its tests. */
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
    int named;      /* -communicators was given: a candidate that cannot run ends the job */
    int iterations; /* 0: as many as fit the time */

    struct cmn_candidate candidate[CMN_CANDIDATES]; /* those that can run */
    int candidates;
};

/* Local. Fills *b, whose session is set and the rest zeroed, from the command line and the
 * defaults. Ends the job when an argument is wrong. */
void cmn_bench_arguments(struct cmn_bench *b, int argc, char **argv);

#endif
