/* shm_barrier: a barrier of the ranks of a node in memory that they share. It names a rank that
 * died or that does not come. */
#ifndef CMN_SHM_BARRIER_H
#define CMN_SHM_BARRIER_H

#include <stddef.h>
#include <stdint.h>

#include "mpi/group.h"

struct cmn_barrier_slot;

struct cmn_shm_barrier {
    const struct cmn_group *group; /* must outlive the barrier */
    struct cmn_barrier_slot *slot; /* one per rank, in shared memory */
    int rank, ranks;
    uint32_t arrivals;   /* how often this rank has arrived */
    int oversubscribed;  /* the ranks have fewer cores than there are ranks */
    int *pidfd;          /* of each rank's process; -1: none */
    const char *purpose; /* set by the owner: the beginning of messages; NULL: nothing */
    /* Set by the owner, or NULL. A rank that waits calls idle(idle_self) again and again instead of
     * sleeping. */
    void (*idle)(void *self);
    void *idle_self;
};

/* Local. Returns the bytes of shared memory that a barrier of `ranks` ranks needs. */
size_t cmn_shm_barrier_bytes(int ranks);

/* Collective over the group, blocking. `slots` is the same memory on all ranks, zeroed and aligned
 * to 128 bytes; the caller keeps owning it. */
void cmn_shm_barrier_open(struct cmn_shm_barrier *b, const struct cmn_group *group, void *slots);

/* Collective, blocking. Returns when all ranks of the group have called it; what they wrote before
 * is then visible. A rank that died, or that did not come within cmn_timeout, ends the job with a
 * message that names it. */
void cmn_shm_barrier_wait(struct cmn_shm_barrier *b);

/* Do the same in steps. cmn_shm_barrier_arrive() is local and not blocking, and returns the number
 * of the barrier. cmn_shm_barrier_complete() is local and not blocking, and returns whether all
 * ranks have arrived at that barrier. cmn_shm_barrier_await() is collective and blocking. A rank
 * may arrive at several barriers before another rank arrives at the first of them. */
uint32_t cmn_shm_barrier_arrive(struct cmn_shm_barrier *b);
int cmn_shm_barrier_complete(const struct cmn_shm_barrier *b, uint32_t barrier);
void cmn_shm_barrier_await(struct cmn_shm_barrier *b, uint32_t barrier);

/* Local. A zeroed barrier may be closed, too. */
void cmn_shm_barrier_close(struct cmn_shm_barrier *b);

#endif
