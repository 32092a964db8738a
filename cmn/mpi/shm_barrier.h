/* A barrier of the ranks of a node in memory that they share. It names the rank that died or that
 * does not come. */
#ifndef CMN_SHM_BARRIER_H
#define CMN_SHM_BARRIER_H

#include <stddef.h>
#include <stdint.h>

#include "mpi/group.h"

struct cmn_barrier_slot;

struct cmn_shm_barrier {
    const struct cmn_group *group; /* must outlive the barrier */
    struct cmn_barrier_slot *slot; /* one for each rank, in memory that all share */
    int rank, ranks;
    uint32_t arrivals;   /* of this rank, so far */
    int oversubscribed;  /* the ranks have fewer cores than they are */
    int *pidfd;          /* of each rank's process; -1: none */
    const char *purpose; /* set by the owner: begins messages; NULL: nothing */
    /* The owner of the barrier sets these, or leaves NULL. A rank that waits calls
     * idle(idle_self) again and again instead of sleeping. */
    void (*idle)(void *self);
    void *idle_self;
};

/* Local. Bytes of shared memory that a barrier of so many ranks needs. */
size_t cmn_shm_barrier_bytes(int ranks);

/* Collective over the group, blocking. `slots` is the same memory on all ranks, zeroed, aligned
 * to 128 bytes; it stays the caller's. */
void cmn_shm_barrier_open(struct cmn_shm_barrier *b, const struct cmn_group *group, void *slots);

/* Collective, blocking: returns when all ranks of the group have called it, and shows what they
 * wrote before. A rank that died, or that did not come within cmn_timeout, ends the job with a
 * message that names it. */
void cmn_shm_barrier_wait(struct cmn_shm_barrier *b);

/* The same in steps. arrive: local, does not block; returns the number of the barrier. complete:
 * local, does not block; whether all ranks have arrived at it. await: collective, blocking. A
 * rank may arrive at several barriers before another arrives at the first of them. */
uint32_t cmn_shm_barrier_arrive(struct cmn_shm_barrier *b);
int cmn_shm_barrier_complete(const struct cmn_shm_barrier *b, uint32_t barrier);
void cmn_shm_barrier_await(struct cmn_shm_barrier *b, uint32_t barrier);

/* Local. A zeroed barrier may be closed, too. */
void cmn_shm_barrier_close(struct cmn_shm_barrier *b);

#endif
