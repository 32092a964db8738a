/* clock_offset: offsets between the clocks of the nodes. The ranks of a node share a clock.
 *
 * Cristian's algorithm (Distributed Computing 3, 1989): a node asks rank 0 for its time. Rank 0
 * reads its clock between question and answer, so taking the middle of the round trip is wrong by
 * at most half of it. The fastest of many round trips counts. Between two measurements the drift is
 * taken as linear. */
#ifndef CMN_CLOCK_OFFSET_H
#define CMN_CLOCK_OFFSET_H

#include "mpi/topology.h"

/* One measurement, in seconds: at time `at`, this rank's clock was `ahead` of rank 0's, plus or
 * minus `error`. */
struct cmn_clock_mark {
    double at, ahead, error;
};

enum { CMN_CLOCK_MARKS = 16 };

struct cmn_clock_offset {
    const struct cmn_topology *topology;
    double (*clock)(void);
    /* The first measurement and the latest ones, in order of time. */
    struct cmn_clock_mark mark[CMN_CLOCK_MARKS];
    int marks;
};

/* Local. t must outlive *c. `clock` returns seconds; it is cmn_clock, or a false clock in tests. */
void cmn_clock_offset_open(struct cmn_clock_offset *c, const struct cmn_topology *t,
                           double (*clock)(void));

/* Collective over t->world, blocking. Adds a measurement. */
void cmn_clock_offset_measure(struct cmn_clock_offset *c);

/* Local. Adds a measurement; a full list drops its second oldest one. */
void cmn_clock_offset_add(struct cmn_clock_offset *c, const struct cmn_clock_mark *mark);

/* Local. Returns rank 0's time when this rank's clock said `time`. Interpolates between
 * measurements, and uses the offset of the nearest one outside of them. Without measurements the
 * clocks count as equal. */
double cmn_clock_offset_align(const struct cmn_clock_offset *c, double time);

#endif
