/* How far the clocks of the nodes are from each other. The ranks of a node share a clock.
 *
 * Cristian's way (Distributed Computing 3, 1989): a message to rank 0, and its answer with rank 0's time. That clock was
 * read somewhere between the two, so the middle is wrong by at most half of the round trip; of many tries the
 * quickest is taken. Between two measurements clocks are taken to drift evenly. */
#ifndef CMN_CLOCKS_H
#define CMN_CLOCKS_H

#include "mpi/topology.h"

/* One measurement: at the time `at` of this rank's clock it was `ahead` of rank 0's, give or take `error`. Seconds. */
struct cmn_clock_mark {
    double at, ahead, error;
};

enum { CMN_CLOCK_MARKS = 16 };

struct cmn_clock_offset {
    const struct cmn_topology *topology;
    MPI_Comm leaders; /* the first ranks of the nodes, numbered as these; none on other ranks */
    double (*clock)(void);
    /* The first and the latest, in the order of time. */
    struct cmn_clock_mark mark[CMN_CLOCK_MARKS];
    int marks;
};

/* Collective over t->world, blocking. t must outlive *c. `clock` tells seconds: cmn_clock, or a false one. */
void cmn_clock_offset_open(struct cmn_clock_offset *c, const struct cmn_topology *t,
                           double (*clock)(void));

/* Collective over t->world, blocking. Measures once more. */
void cmn_clock_offset_measure(struct cmn_clock_offset *c);

/* Local. Adds a measurement; when there is no room, the oldest but the first goes. */
void cmn_clock_offset_add(struct cmn_clock_offset *c, const struct cmn_clock_mark *mark);

/* Local. What rank 0's clock said when this rank's said `time`. Between measurements it is interpolated; before the first
 * and after the last that one holds, and without any the clocks are taken to agree. */
double cmn_clock_offset_align(const struct cmn_clock_offset *c, double time);

/* Collective where leaders is not MPI_COMM_NULL. */
void cmn_clock_offset_close(struct cmn_clock_offset *c);

#endif
