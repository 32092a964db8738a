/* flat: all gradients lie in one block, which is exchanged at once, in chunks.
 *
 * Steps: for every chunk of the block, MPI_Allreduce over all ranks, in place.
 * Bytes: about 2(N-1)/N * 4n sent per rank for a block of n floats, by any bandwidth-optimal
 * algorithm; Open MPI picks one per chunk size.
 * The chunk bounds Open MPI's temporary, which it allocates in every call, and is never near the
 * largest count that an int holds. Of 1/4 to 8 MiB, 4 MiB took the least time (docs/performance.md). */
#include "communicator.h"
#include "transports/transport.h"

enum { CHUNK = 1024 * 1024 }; /* floats: 4 MiB */

static int open_flat(void **self, const struct cmn_topology *t, const struct cmn_options *o)
{
    (void)o;
    return cmn_mpi.open(self, t->world);
}

static int allreduce_flat(void *self, const struct cmn_exchange *x)
{
    return cmn_mpi.allreduce(self, x->block.data, x->block.n + x->tally.n, CHUNK);
}

static void close_flat(void *self)
{
    cmn_mpi.close(self);
}

const struct cmn_communicator cmn_communicator_flat = {
    .name = "flat",
    .cpu = "yes",
    .gpu = "not yet",
    .use = "any machine and any number of nodes",
    .sums = 1,
    .open = open_flat,
    .allreduce = allreduce_flat,
    .close = close_flat,
};
