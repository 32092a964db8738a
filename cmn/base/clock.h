/* clock: a monotonic clock. */
#ifndef CMN_CLOCK_H
#define CMN_CLOCK_H

#include <time.h>

/* Returns the seconds of a clock that never jumps. */
static inline double cmn_clock(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
