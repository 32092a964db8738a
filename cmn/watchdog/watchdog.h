/* Notices that a job makes no progress: a thread of each rank, which looks at the statuses of
 * base/status.h, its own and those of the other ranks, and never calls MPI. The leader of each
 * node, its lowest responsive rank, sends heartbeats for all of the node to rank 0's watchdog,
 * which diagnoses. The thread counts time in looks: a job that is suspended as a whole resumes. */
#ifndef CMN_WATCHDOG_H
#define CMN_WATCHDOG_H

#include "config/options.h"
#include "mpi/topology.h"

struct cmn_watchdog_plan {
    long limit;    /* seconds: cmn_timeout */
    long at_least; /* seconds that the limit is at least before cmn_watchdog_open() */
    /* Before cmn_watchdog_open(): this process waits in `doing`, and has made no progress for so
     * many seconds. */
    void (*late)(const char *doing, long seconds);
    /* Ends the job for this reason; must not return. Calls `meanwhile` once people have been told.
     * Both are NULL when another rank has said why. */
    void (*end)(const char *why, void (*meanwhile)(void));
};

/* Local. Starts the thread; called by the main thread. */
void cmn_watchdog_start(const struct cmn_watchdog_plan *plan);

/* Collective, blocking. All ranks are watched from here on. t and o must outlive the job. */
void cmn_watchdog_open(const struct cmn_topology *t, const struct cmn_options *o);

/* Local. Sets the limit once the cfg is read. Where the ranks of a node cannot see each other's
 * statuses, people are warned here: earlier the start could still have failed. */
void cmn_watchdog_limit(long seconds);

/* Blocking. This process has done its part of the job: the thread says so, and ends. `together`:
 * waits for all ranks of this node first. MPI lets each rank leave once all have entered
 * MPI_Finalize, and nobody could name one that stalls later. Does nothing without the thread. */
void cmn_watchdog_close(int together);

#endif
