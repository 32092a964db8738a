/* flat: all gradients lie in one block, which is exchanged at once, in chunks.
 *
 * Steps: for every chunk of 4 MiB of the block, MPI_Allreduce over all ranks, in place.
 * With a compressor, double buffering or a named cmn_exchange: overlapped_allreduce.h, with each rank as a node of its
 * own; with a compressor on GPUs compressed_allreduce.h, whose messages are the CPU's.
 * Bytes: about 2(N-1)/N * 4n sent per rank for a block of n floats, by any bandwidth-optimal
 * algorithm; Open MPI picks one per chunk size. */
#include "communicators/communicator.h"

#include "base/memory.h"
#include "communicators/node_groups.h"
#include "transports/mpi.h"

struct flat {
    struct cmn_node_groups groups; /* overlap or compressed alone, or neither */
    struct cmn_group world;
    struct cmn_topology alone; /* each rank a node of its own */
};

/* Whether MPI_Allreduce will not do. */
static int overlaps(const struct cmn_topology *t, const struct cmn_options *o)
{
    return t->device < 0 &&
           (o->compress != CMN_COMPRESS_NONE || o->dtype != CMN_FP32 || o->double_buffering ||
            (o->exchange != CMN_EXCHANGE_AUTO && o->exchange != CMN_EXCHANGE_MPI));
}

static const char *refuses_flat(const struct cmn_topology *t, const struct cmn_options *o)
{
    const char *why = cmn_compressed_wanted(t, o) ? NULL : cmn_mpi.refuses(t, o);

    if (t->device >= 0 && o->double_buffering && !cmn_compressed_wanted(t, o)) {
        return cmn_mpi_on_gpu;
    }
    return why || !overlaps(t, o) ? why : cmn_overlap_refuses(o);
}

static int open_flat(void **self, const struct cmn_topology *t, const struct cmn_options *o)
{
    struct flat *f = cmn_calloc(1, sizeof *f);

    *self = f;
    f->world = (struct cmn_group){t->world, "world", t, o};
    f->alone = *t;
    f->alone.intra = MPI_COMM_SELF;
    f->alone.inter = t->world;
    f->alone.intra_rank = 0;
    f->alone.intra_size = f->alone.least_intra = 1;
    f->alone.inter_rank = t->rank;
    f->alone.inter_size = t->size;
    if (cmn_compressed_wanted(t, o)) {
        f->groups.compressed = cmn_compressed_open(&f->alone, o, 1, NULL);
    }
    return overlaps(t, o) ? cmn_overlap_open(&f->groups.overlap, &f->alone, o, 1) : 0;
}

static void allreduce_flat(void *self, const struct cmn_exchange *x)
{
    struct flat *f = self;

    if (!cmn_node_groups_allreduce(&f->groups, x)) {
        cmn_mpi_allreduce(&f->world, x->block.data, x->block.n + x->metrics.n, CMN_MPI_FLOATS);
    }
}

static const char *no_begin_flat(void *self)
{
    const struct flat *f = self;

    if (f->world.topology->device >= 0) {
        return f->groups.compressed ? cmn_compressed_no_begin : cmn_mpi_on_gpu;
    }
    return f->groups.overlap
               ? NULL
               : "MPI's allreduce makes no progress by itself: use shm, two_dimensional or "
                 "hierarchical";
}

const struct cmn_communicator cmn_communicator_flat = {
    .name = "flat",
    .cpu = "yes",
    .gpu = "with CUDA-aware MPI (untried)",
    .use = "any machine and any number of nodes",
    .sums = 1,
    .delays = 1,
    .compresses = 1,
    .always = "mpi",
    .refuses = refuses_flat,
    .open = open_flat,
    .memory = cmn_node_groups_memory,
    .allreduce = allreduce_flat,
    .begin = cmn_node_groups_begin,
    .poll = cmn_node_groups_poll,
    .no_begin = no_begin_flat,
    .state = cmn_node_groups_state,
    .close = cmn_node_groups_close,
};
