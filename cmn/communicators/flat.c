/* flat: all gradients lie in one block, which is exchanged at once, in chunks.
 *
 * Steps: for every chunk of the block, MPI_Allreduce over all ranks, in place.
 * Bytes: about 2(N-1)/N * 4n sent per rank for a block of n floats, by any bandwidth-optimal
 * algorithm; Open MPI picks one per chunk size.
 * With a compressor or double buffering each rank exchanges with all others as overlap.h says of nodes.
 * The chunk bounds Open MPI's temporary, which it allocates in every call, and is never near the
 * largest count that an int holds. Of 1/4 to 8 MiB, 4 MiB took the least time (docs/performance.md). */
#include "communicators/communicator.h"

#include <stdint.h>
#include <stdlib.h>

#include "communicators/overlapped_allreduce.h"
#include "communicators/node_groups.h"
#include "base/log.h"
#include "transports/transport.h"

enum { CHUNK = 1024 * 1024 };

struct flat {
    struct cmn_group world;
    void *transport;
    struct cmn_topology alone;   /* each rank a node of its own */
    struct cmn_overlap *overlap; /* with a compressor or double buffering, else NULL */
    struct cmn_kept *kept;
};

/* Whether MPI_Allreduce will not do. */
static int overlaps(const struct cmn_topology *t, const struct cmn_options *o)
{
    return t->device < 0 &&
           (o->compress != CMN_COMPRESS_NONE || o->dtype != CMN_FP32 || o->double_buffering);
}

static const char *refuses_flat(const struct cmn_topology *t, const struct cmn_options *o)
{
    const char *why = cmn_mpi.refuses(t, o);

    return why || !overlaps(t, o) ? why : cmn_overlap_refuses(t, o);
}

static int open_flat(void **self, const struct cmn_topology *t, const struct cmn_options *o)
{
    struct flat *f = calloc(1, sizeof *f);

    if (!f) {
        return cmn_fail("out of memory");
    }
    *self = f;
    f->world = (struct cmn_group){t->world, "world", t, o, CHUNK};
    if (overlaps(t, o)) {
        f->alone = *t;
        f->alone.intra = MPI_COMM_SELF;
        f->alone.inter = t->world;
        f->alone.intra_rank = 0;
        f->alone.intra_size = f->alone.least_intra = 1;
        f->alone.inter_rank = t->rank;
        f->alone.inter_size = t->size;
        return cmn_overlap_open(&f->overlap, &f->alone, o, 1);
    }
    return cmn_mpi.open(&f->transport, &f->world);
}

static int allreduce_flat(void *self, const struct cmn_exchange *x)
{
    const struct flat *f = self;

    if (f->overlap) {
        return cmn_overlap_allreduce(f->overlap, x);
    }
    return cmn_mpi.allreduce(f->transport, x->block.data, x->block.n + x->metrics.n);
}

static int memory_flat(void *self, size_t floats, float **memory)
{
    struct flat *f = self;

    return f->overlap ? cmn_overlap_memory(f->overlap, floats, memory)
                      : cmn_buffers_new(&f->kept, floats, memory);
}

static int begin_flat(void *self, const struct cmn_exchange *x, size_t upto)
{
    const struct flat *f = self;

    return cmn_overlap_begin(f->overlap, x, upto);
}

static int poll_flat(void *self)
{
    const struct flat *f = self;

    return f->overlap ? cmn_overlap_poll(f->overlap) : 0;
}

static const char *no_begin_flat(void *self)
{
    const struct flat *f = self;

    if (f->world.topology->device >= 0) {
        return cmn_overlap_on_gpu;
    }
    return f->overlap ? NULL
                      : "MPI's allreduce makes no progress by itself: use shm, two_dimensional or "
                        "hierarchical";
}

static int state_flat(void *self, int i, struct cmn_state *state)
{
    const struct flat *f = self;

    return f->overlap ? cmn_overlap_state(f->overlap, i, state) : 0;
}

static void close_flat(void *self)
{
    struct flat *f = self;

    if (f->overlap) {
        cmn_overlap_close(f->overlap);
    } else {
        cmn_mpi.close(f->transport);
    }
    cmn_buffers_free(f->kept);
    free(f);
}

const struct cmn_communicator cmn_communicator_flat = {
    .name = "flat",
    .cpu = "yes",
    .gpu = "with CUDA-aware MPI (untried)",
    .use = "any machine and any number of nodes",
    .sums = 1,
    .encodes = 1,
    .always = "mpi",
    .refuses = refuses_flat,
    .open = open_flat,
    .memory = memory_flat,
    .allreduce = allreduce_flat,
    .begin = begin_flat,
    .poll = poll_flat,
    .no_begin = no_begin_flat,
    .state = state_flat,
    .close = close_flat,
};
