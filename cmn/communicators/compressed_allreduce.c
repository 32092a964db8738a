#include "communicators/compressed_allreduce.h"

#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/memory.h"
#include "mpi/call.h"
#include "mpi/device.h"
#include "transports/nccl.h"

struct cmn_compressed {
    const struct cmn_topology *topology;
    const struct cmn_options *options;
    int owners;
    void *within;
    MPI_Comm inter; /* the owners with this intra_rank; MPI_COMM_NULL on ranks that own nothing */

    const struct cmn_compressor *compressor;
    void *self;
    struct cmn_compressor_plan plan;
    struct cmn_shards shards;
    struct cmn_exchange bound; /* what the shards were cut for */
    struct cmn_region *region; /* of the block, by owner */
    int regions;
    long begun;    /* shards */
    void *stream;  /* of the compressor */
    int under_way; /* the sums within the node were begun, */
    int started;   /* and then the shards */
};

const char cmn_compressed_no_begin[] =
    "on GPUs a compressor takes all gradients at once, behind backward";

static void require(int result)
{
    if (result) {
        cmn_fatal_reason();
    }
}

int cmn_compressed_wanted(const struct cmn_topology *t, const struct cmn_options *o)
{
    return t->device >= 0 && o->compress != CMN_COMPRESS_NONE;
}

struct cmn_compressed *cmn_compressed_open(const struct cmn_topology *t,
                                           const struct cmn_options *o, int owners, void *within)
{
    struct cmn_compressed *c = cmn_calloc(1, sizeof *c);

    c->topology = t;
    c->options = o;
    c->owners = owners;
    c->within = within;
    c->compressor = cmn_compressor_wanted(o);
    c->inter = MPI_COMM_NULL;
    if (t->intra_rank < owners) {
        MPI_CALL(MPI_Comm_dup(t->inter, &c->inter));
    }
    require(cmn_device_stream_open(&c->stream));
    return c;
}

static void unbind(struct cmn_compressed *c)
{
    if (c->self) {
        c->compressor->close(c->self);
        c->self = NULL;
    }
    cmn_shards_close(&c->shards);
    free(c->region);
    c->region = NULL;
    c->regions = 0;
    c->begun = 0;
}

/* Neighbours of one owner are one region, with the padding between them. */
static void find_regions(struct cmn_compressed *c)
{
    c->region = cmn_calloc((size_t)c->shards.shards, sizeof *c->region);
    for (int i = 0; i < c->shards.shards; i++) {
        const struct cmn_shard *shard = &c->shards.shard[i];
        struct cmn_region *last = c->regions ? &c->region[c->regions - 1] : NULL;
        if (last && last->root == shard->owner) {
            last->n = shard->at + shard->n - last->at;
        } else {
            c->region[c->regions++] = (struct cmn_region){shard->at, shard->n, shard->owner};
        }
    }
}

void cmn_compressed_prepare(struct cmn_compressed *c, const struct cmn_exchange *x)
{
    const struct cmn_exchange *b = &c->bound;

    if (b->block.data == x->block.data && b->block.n == x->block.n && b->tensor == x->tensor &&
        b->tensors == x->tensors) {
        return;
    }
    unbind(c);
    c->bound = *x;
    cmn_shards_open(&c->shards, x->tensor, x->tensors, &x->block, x->metrics.n, c->owners,
                    c->compressor->whole_tensors);
    find_regions(c);
    c->plan = (struct cmn_compressor_plan){
        .comm = c->inter,
        .topology = c->topology,
        .options = c->options,
        .shard = c->shards.shard,
        .shards = c->shards.shards,
        .owner = c->topology->intra_rank,
        .block = x->block.data,
        .stream = c->stream,
    };
    if (c->inter != MPI_COMM_NULL) {
        c->self = c->compressor->open(&c->plan);
    }
}

/* Once NCCL's sums within the node lie on its stream. */
static void begin_shards(struct cmn_compressed *c)
{
    c->started = 1;
    if (!c->self || c->topology->inter_size == 1) {
        return;
    }
    for (int i = 0; i < c->shards.shards; i++) {
        if (c->shards.shard[i].owner == c->topology->intra_rank) {
            c->compressor->begin(c->self, i);
            c->begun++;
        }
    }
}

void cmn_compressed_begin(struct cmn_compressed *c, const struct cmn_exchange *x, size_t upto)
{
    cmn_compressed_prepare(c, x);
    if (upto < x->block.n + x->metrics.n || c->under_way) {
        return;
    }
    c->under_way = 1;
    if (c->within) {
        cmn_nccl_begin_regions(c->within, x->block.data, c->region, c->regions);
    } else {
        require(cmn_device_follow(c->stream, cmn_device_stream()));
    }
    cmn_compressed_poll(c);
}

void cmn_compressed_poll(struct cmn_compressed *c)
{
    if (!c->under_way) {
        return;
    }
    if (!c->started) {
        if (c->within) {
            cmn_nccl_poll(c->within);
            if (!cmn_nccl_orders_all(c->within, c->stream)) {
                return;
            }
        }
        begin_shards(c);
    }
    if (c->self && c->topology->inter_size > 1) {
        c->compressor->progress(c->self, 0);
    }
}

void cmn_compressed_allreduce(struct cmn_compressed *c, const struct cmn_exchange *x)
{
    cmn_compressed_begin(c, x, x->block.n + x->metrics.n);
    if (c->within) {
        cmn_nccl_end(c->within);
    }
    if (!c->started) {
        begin_shards(c);
    }
    if (c->self && c->topology->inter_size > 1) {
        c->compressor->progress(c->self, c->begun);
        require(cmn_device_wait_for(c->stream)); /* the sums' copies to the GPU */
    }
    c->under_way = c->started = 0;
    if (c->within) {
        cmn_nccl_regions(c->within, x->block.data, c->region, c->regions, 0);
    }
}

int cmn_compressed_state(struct cmn_compressed *c, int i, struct cmn_state *state)
{
    return c->self ? c->compressor->state(c->self, i, state) : 0;
}

void cmn_compressed_close(struct cmn_compressed *c)
{
    if (!c) {
        return;
    }
    unbind(c);
    if (c->inter != MPI_COMM_NULL) {
        MPI_Comm_free(&c->inter);
    }
    cmn_device_stream_close(c->stream);
    free(c);
}
