/* flat: all gradients lie in one block, which is exchanged at once, in chunks.
 *
 * Steps: for every chunk of 4 MiB of the block, MPI_Allreduce over all ranks, in place.
 * With a compressor, double buffering, cmn_exact or CMN_DEBUG_EXCHANGE: overlapped_allreduce.h, with each rank as a node of its
 * own; with a compressor on GPUs compressed_allreduce.h, whose messages are the CPU's. On GPUs with 16 bits, double
 * buffering or CMN_DEBUG_EXCHANGE non_cuda_aware.c, in which each rank copies: MPI adds no floats of 16 bits, and
 * sums a GPU's memory in calls that block.
 * Bytes: about 2(N-1)/N * 4n sent per rank for a block of n floats, by any bandwidth-optimal
 * algorithm; Open MPI picks one per chunk size. */
#include "communicators/communicator.h"

#include "base/memory.h"
#include "communicators/node_groups.h"
#include "mpi/device.h"
#include "mpi/call.h"

extern const struct cmn_communicator cmn_communicator_non_cuda_aware;
static const struct cmn_communicator *const copying = &cmn_communicator_non_cuda_aware;

struct flat {
    struct cmn_node_groups groups; /* overlap or compressed alone, or neither */
    const struct cmn_topology *topology;
    struct cmn_topology alone;      /* each rank a node of its own */
    void *copies;                   /* copying's; NULL: not through it */
    struct cmn_options by_messages; /* for it */
};

/* Whether MPI_Allreduce will not do, and messages of our own are needed. */
static int needs_messages(const struct cmn_options *o)
{
    return o->compress != CMN_COMPRESS_OFF || o->double_buffering || o->exact ||
           o->exchange != CMN_EXCHANGE_AUTO;
}

static int overlaps(const struct cmn_topology *t, const struct cmn_options *o)
{
    return t->device < 0 && needs_messages(o);
}

static int copies(const struct cmn_topology *t, const struct cmn_options *o)
{
    return t->device >= 0 && needs_messages(o) && !cmn_compressed_wanted(t, o);
}

static const char *refuses_flat(const struct cmn_topology *t, const struct cmn_options *o)
{
    if (overlaps(t, o) || copies(t, o)) {
        return NULL;
    }
    return cmn_compressed_wanted(t, o) ? NULL : cmn_device_refuses_mpi(t);
}

static int open_copying(struct flat *f, const struct cmn_topology *t, const struct cmn_options *o)
{
    f->by_messages = *o;
    f->by_messages.intra = CMN_INTRA_MPI;
    return copying->open(&f->copies, t, &f->by_messages);
}

static int open_flat(void **self, const struct cmn_topology *t, const struct cmn_options *o)
{
    struct flat *f = cmn_calloc(1, sizeof *f);

    *self = f;
    f->topology = t;
    f->alone = cmn_node_groups_alone(t);
    if (cmn_compressed_wanted(t, o)) {
        f->groups.compressed = cmn_compressed_open(&f->alone, o, 1, NULL);
    }
    if (copies(t, o)) {
        return open_copying(f, t, o);
    }
    return overlaps(t, o) ? cmn_overlap_open(&f->groups.overlap, &f->alone, o, 1) : 0;
}

static void allreduce_flat(void *self, const struct cmn_exchange *x)
{
    struct flat *f = self;

    if (f->copies) {
        copying->allreduce(f->copies, x);
    } else if (f->groups.overlap || f->groups.compressed) {
        cmn_node_groups_allreduce(f, x);
    } else {
        cmn_mpi_allreduce(x->block.data, x->block.n + x->metrics.n, CMN_MPI_FLOATS,
                          f->topology->world);
    }
}

static void begin_flat(void *self, const struct cmn_exchange *x, size_t upto)
{
    struct flat *f = self;

    if (f->copies) {
        copying->begin(f->copies, x, upto);
    } else {
        cmn_node_groups_begin(f, x, upto);
    }
}

static void poll_flat(void *self)
{
    struct flat *f = self;

    if (f->copies) {
        copying->poll(f->copies);
    } else {
        cmn_node_groups_poll(f);
    }
}

static int state_flat(void *self, int i, struct cmn_state *state)
{
    struct flat *f = self;

    return f->copies ? copying->state(f->copies, i, state) : cmn_node_groups_state(f, i, state);
}

static void close_flat(void *self)
{
    struct flat *f = self;

    if (f->copies) {
        copying->close(f->copies);
    }
    cmn_node_groups_close(f);
}

static const char *no_begin_flat(void *self)
{
    const struct flat *f = self;

    if (f->copies || f->groups.compressed) {
        return NULL;
    }
    if (f->topology->device >= 0) {
        return "MPI sums a GPU's memory in calls that block, and makes no progress by itself: use "
               "NCCL, or non_cuda_aware";
    }
    return f->groups.overlap
               ? NULL
               : "MPI's allreduce makes no progress by itself: use shm, two_dimensional or "
                 "hierarchical";
}

const struct cmn_communicator cmn_communicator_flat = {
    .name = "flat",
    .cpu = "yes",
    .gpu = "CUDA-aware MPI (untried), or messages of its own",
    .use = "any machine and any number of nodes",
    .sums = 1,
    .can = {CMN_CAN_ALL, CMN_CAN_ALL},
    .refuses = refuses_flat,
    .open = open_flat,
    .memory = cmn_node_groups_memory,
    .allreduce = allreduce_flat,
    .begin = begin_flat,
    .poll = poll_flat,
    .no_begin = no_begin_flat,
    .state = state_flat,
    .close = close_flat,
};
