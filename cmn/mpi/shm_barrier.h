/* The ranks of a group wait for each other through a piece of shared memory, and notice who does not come. */
#ifndef CMN_MEETING_H
#define CMN_MEETING_H

#include <stddef.h>
#include <stdint.h>

#include "mpi/group.h"

struct cmn_barrier_slot;

struct cmn_shm_barrier {
    const struct cmn_group *group; /* must outlive the barrier */
    struct cmn_barrier_slot *sign; /* one of each rank, in memory that all share */
    int rank, ranks;
    uint32_t met; /* barriers so far */
    int crowded;
    int *peer; /* pidfd of each rank, or -1 */
    /* Set by the owner of the barrier, or NULL: what to do while waiting, again and again, instead of sleeping. Returns 0, or
     * -1 with a reason, which ends the wait. */
    int (*idle)(void *self);
    void *idler;
};

/* Local. Bytes of shared memory that a barrier of so many ranks needs. */
size_t cmn_shm_barrier_bytes(int ranks);

/* Collective over the group, blocking. `signs` is the same memory on all ranks, zeroed, aligned to 128 bytes; it
 * stays the caller's. 0, or -1 with a reason; to be closed in either case. */
int cmn_shm_barrier_open(struct cmn_shm_barrier *m, const struct cmn_group *group, void *signs);

/* Collective, blocking: returns when all ranks of the group have called it; what they wrote before is
 * then seen. 0, or -1 with a reason that names the rank that died, or that did not come within cmn_timeout. */
int cmn_shm_barrier_wait(struct cmn_shm_barrier *m);

/* The same in two steps. Arriving is local and does not block; it returns the barrier's number. Whether all have come:
 * local, does not block. Waiting for them: collective, blocking; 0, or -1 as above. A rank may be several barriers
 * ahead of another. */
uint32_t cmn_shm_barrier_arrive(struct cmn_shm_barrier *m);
int cmn_shm_barrier_complete(const struct cmn_shm_barrier *m, uint32_t barrier);
int cmn_shm_barrier_await(struct cmn_shm_barrier *m, uint32_t barrier);

/* Local. A zeroed barrier may be closed, too. */
void cmn_shm_barrier_close(struct cmn_shm_barrier *m);

#endif
