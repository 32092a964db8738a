/* flat: all gradients lie in one block, which is exchanged at once, in chunks.
 *
 * Steps: for every chunk of the block, MPI_Allreduce over all ranks, in place.
 * Bytes: about 2(N-1)/N * 4n sent per rank for a block of n floats, by any bandwidth-optimal
 * algorithm; Open MPI picks one per chunk size.
 * The chunk bounds Open MPI's temporary, which it allocates in every call, and is never near the
 * largest count that an int holds. Of 1/4 to 8 MiB, 4 MiB took the least time (docs/performance.md). */
#include "communicator.h"

#include <stdint.h>
#include <stdlib.h>

#include "log.h"
#include "transports/transport.h"

enum { CHUNK = 1024 * 1024 };

struct flat {
    struct cmn_group world;
    void *transport;
};

static const char *refuses_flat(const struct cmn_topology *t, const struct cmn_options *o)
{
    return cmn_mpi.refuses(t, o);
}

static int open_flat(void **self, const struct cmn_topology *t, const struct cmn_options *o)
{
    struct flat *f = calloc(1, sizeof *f);

    if (!f) {
        return cmn_fail("out of memory");
    }
    *self = f;
    f->world = (struct cmn_group){t->world, "world", t, o, CHUNK};
    return cmn_mpi.open(&f->transport, &f->world);
}

static int allreduce_flat(void *self, const struct cmn_exchange *x)
{
    const struct flat *f = self;

    return cmn_mpi.allreduce(f->transport, x->block.data, x->block.n + x->tally.n);
}

static void close_flat(void *self)
{
    struct flat *f = self;

    cmn_mpi.close(f->transport);
    free(f);
}

const struct cmn_communicator cmn_communicator_flat = {
    .name = "flat",
    .cpu = "yes",
    .gpu = "with CUDA-aware MPI (untried)",
    .use = "any machine and any number of nodes",
    .sums = 1,
    .always = "mpi",
    .refuses = refuses_flat,
    .open = open_flat,
    .allreduce = allreduce_flat,
    .close = close_flat,
};
