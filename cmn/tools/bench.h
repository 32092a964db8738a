/* The parts of `darknet cmn bench`. */
#ifndef CMN_BENCH_H
#define CMN_BENCH_H

#include <stddef.h>

#include "trainer/session.h"
#include "tools/benchmark.h"

enum { CMN_BENCH_SIZES = 32, CMN_BENCH_ROWS = 32 };

struct cmn_bench {
    const struct cmn_session *session;
    size_t size[CMN_BENCH_SIZES]; /* in floats */
    int sizes;
    const char *name[CMN_BENCH_ROWS]; /* of the contestants */
    int names;
    int named;      /* they were asked for: one that cannot take part is an error */
    int iterations; /* 0: as many as fit the time */
    int json;

    struct cmn_benchmark in[CMN_BENCH_ROWS]; /* those that take part */
    int ins;
};

/* One line of the result. */
struct cmn_bench_row {
    const char *name;
    size_t floats;
    double seconds; /* of one exchange, the median over the iterations of the slowest rank's */
    int iterations;
    long wrong; /* floats on all ranks; -1: nothing is summed */
};

/* Local (bench_arguments.c). Fills b from the command line, and the rest by default. 0, or -1 with a reason. */
int cmn_bench_arguments(struct cmn_bench *b, int argc, char **argv);

/* Local, for the rank that prints (bench_print.c): before, for each row, and after all. 0, or -1 with a reason. */
int cmn_bench_begin(const struct cmn_bench *b);
int cmn_bench_row(const struct cmn_bench *b, const struct cmn_bench_row *row);
int cmn_bench_end(const struct cmn_bench *b);

#endif
