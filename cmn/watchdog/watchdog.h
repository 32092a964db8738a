/* Who notices that nothing moves: a thread of each rank, which looks at the notes of watch.h, its own and those of the other
 * ranks, and never calls MPI. On each node one of them speaks for all, of nodes that of rank 0. It counts its own time: a job
 * that is suspended as a whole may go on. */
#ifndef CMN_WATCHDOG_H
#define CMN_WATCHDOG_H

#include "config/options.h"
#include "mpi/topology.h"

struct cmn_watchdog_plan {
    long limit;    /* seconds: cmn_timeout */
    long at_least; /* seconds that it is before cmn_watchdog_open() at the least */
    /* Until cmn_watchdog_open(): this process waits in `doing`, and nothing has moved for so many seconds. */
    void (*late)(const char *doing, long seconds);
    /* Ends the job for this reason; not to return. `meanwhile` is to be called once people have been told. Both may be NULL: another
     * rank has said why. */
    void (*end)(const char *why, void (*meanwhile)(void));
};

/* Local. Starts the thread; called by the main thread. 0, or -1 with a reason. */
int cmn_watchdog_start(const struct cmn_watchdog_plan *plan);

/* Collective, blocking. From here on all ranks are watched. t and o must stay. 0, or -1 with a reason. */
int cmn_watchdog_open(const struct cmn_topology *t, const struct cmn_options *o);

/* Local. cmn_timeout is known, and the job begins: what would have ended it as well is no news any more, so that the ranks of a node cannot
 * see each other is told now. */
void cmn_watchdog_limit(long seconds);

/* Blocking. This process has done its part of the job: the thread says so, and ends. `together`: once all ranks of this node have
 * (MPI lets one go that the others have met, and a rank that stands still from there on would be nobody's to name). Does
 * nothing where there is no thread. */
void cmn_watchdog_close(int together);

#endif
