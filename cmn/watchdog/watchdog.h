/* watchdog: notices that a job makes no progress.
 *
 * A thread of each rank looks at the statuses of base/status.h, its own and those of the other
 * ranks, and never calls MPI. The leader of each node, its lowest responsive rank, sends heartbeats
 * for the whole node to rank 0's watchdog, which diagnoses. The thread counts time in looks, so a
 * job that is suspended as a whole resumes without a false alarm. */
#ifndef CMN_WATCHDOG_H
#define CMN_WATCHDOG_H

#include "config/options.h"
#include "mpi/topology.h"

struct cmn_watchdog_plan {
    long limit;    /* cmn_timeout, in seconds */
    long at_least; /* minimum of the limit before cmn_watchdog_open(), in seconds */
    /* Called before cmn_watchdog_open() if this process waits in `doing` and has made no progress
     * for `seconds`. */
    void (*late)(const char *doing, long seconds);
    /* Ends the job for the reason `why`; must not return. Calls `meanwhile` once people have been
     * told. Both arguments are NULL if another rank has said why. */
    void (*end)(const char *why, void (*meanwhile)(void));
};

/* Local. Starts the thread. Must be called by the main thread. */
void cmn_watchdog_start(const struct cmn_watchdog_plan *plan);

/* Collective, blocking. From here on all ranks are watched. t and o must outlive the job. */
void cmn_watchdog_open(const struct cmn_topology *t, const struct cmn_options *o);

/* Local. Sets the limit once the cfg is read. If the ranks of a node cannot see each other's
 * statuses, it warns people now; earlier the start could still have failed. */
void cmn_watchdog_limit(long seconds);

/* Blocking. Declares that this process has done its part of the job; the thread tells the others,
 * and ends. With `together`, first waits for all ranks of this node: MPI lets each rank leave once
 * all have entered MPI_Finalize, and nobody could name a rank that stalls later. Does nothing
 * without the thread. */
void cmn_watchdog_close(int together);

#endif
