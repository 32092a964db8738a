#include "communicators/compressed_allreduce.h"

#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/memory.h"
#include "mpi/call.h"
#include "mpi/device.h"
#include "transports/nccl.h"

/* A part of the block that is begun together: whole shards. Parts follow each other. */
struct part {
    size_t end; /* floats of block and metrics */
    /* Up to its end, from the block's begin: */
    int shards, regions;
    int jobs; /* of NCCL */
};

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
    struct part *part;
    int parts;
    int begun, started; /* parts whose sums within the node were begun; and then their shards */
    long shards_begun;
    void *stream; /* of the compressor */
};

static void require(int result)
{
    if (result) {
        cmn_fatal_reason();
    }
}

int cmn_compressed_wanted(const struct cmn_topology *t, const struct cmn_options *o)
{
    return t->device >= 0 && o->compress == CMN_COMPRESS_POWERSGD;
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
    free(c->part);
    c->part = NULL;
    c->regions = c->parts = 0;
    c->shards_begun = 0;
}

static struct part before(const struct cmn_compressed *c, int part)
{
    return part ? c->part[part - 1] : (struct part){0};
}

/* Parts follow from the shards alone: NCCL's calls are the same whenever they are begun. Neighbours of
 * one owner in a part are one region, with the padding between them. */
static void find_parts(struct cmn_compressed *c, size_t each)
{
    size_t first = 0; /* float of the part */

    c->region = cmn_calloc((size_t)c->shards.shards, sizeof *c->region);
    c->part = cmn_calloc((size_t)c->shards.shards, sizeof *c->part);
    for (int i = 0; i < c->shards.shards; i++) {
        const struct cmn_shard *shard = &c->shards.shard[i];
        struct part *part = c->parts ? &c->part[c->parts - 1] : NULL;
        int is_new = !part || (part->end - first >= each && shard->n);
        struct cmn_region *last = is_new ? NULL : &c->region[c->regions - 1];
        if (is_new) {
            first = shard->at;
            part = &c->part[c->parts++];
        }
        if (last && last->root == shard->owner) {
            last->n = shard->at + shard->n - last->at;
        } else {
            c->region[c->regions++] = (struct cmn_region){shard->at, shard->n, shard->owner};
        }
        part->end = shard->at + shard->n;
        part->shards = i + 1;
        part->regions = c->regions;
    }
    for (int i = 0; i < c->parts; i++) {
        c->part[i].jobs =
            before(c, i).jobs + cmn_nccl_jobs(c->part[i].regions - before(c, i).regions);
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
    find_parts(c, cmn_nccl_chunk(x->block.n));
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

/* Begins the shards of the next part, once its sums within the node lie on NCCL's stream. */
static void start(struct cmn_compressed *c)
{
    int i = before(c, c->started).shards, end = c->part[c->started].shards;

    c->started++;
    for (; c->self && c->topology->inter_size > 1 && i < end; i++) {
        if (c->shards.shard[i].owner == c->topology->intra_rank) {
            c->compressor->begin(c->self, i);
            c->shards_begun++;
        }
    }
}

/* The next part's sums within the node. */
static void begin_part(struct cmn_compressed *c)
{
    int first = before(c, c->begun).regions, end = c->part[c->begun].regions;

    c->begun++;
    if (c->within) {
        cmn_nccl_begin_regions(c->within, c->bound.block.data, c->region + first, end - first);
    } else {
        require(cmn_device_follow(c->stream, cmn_device_stream()));
    }
}

void cmn_compressed_begin(struct cmn_compressed *c, const struct cmn_exchange *x, size_t upto)
{
    cmn_compressed_prepare(c, x);
    while (c->begun < c->parts && c->part[c->begun].end <= upto) {
        begin_part(c);
        if (!c->within) {
            start(c); /* what is begun later is no wait of this part */
        }
    }
    cmn_compressed_poll(c);
}

void cmn_compressed_poll(struct cmn_compressed *c)
{
    if (!c->begun) {
        return;
    }
    if (c->within) {
        cmn_nccl_poll(c->within);
    }
    while (c->started < c->begun &&
           cmn_nccl_orders_stream(c->within, c->part[c->started].jobs - 1, c->stream)) {
        start(c);
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
    while (c->started < c->parts) {
        start(c);
    }
    if (c->self && c->topology->inter_size > 1) {
        c->compressor->progress(c->self, c->shards_begun);
        require(cmn_device_wait_for(c->stream)); /* the sums' copies to the GPU */
    }
    c->begun = c->started = 0;
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
