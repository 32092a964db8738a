#include "compression/shards.h"

#include <stdlib.h>

#include "base/memory.h"
#include "mpi/group.h"

/* Neighbouring small tensors share a shard of at most this number of floats. */
enum { TOGETHER = 8192 };

struct cutting {
    struct cmn_shards *shards;
    size_t *load; /* floats of each owner so far */
    int owners;
};

static void add(struct cutting *c, const struct cmn_shard *shard)
{
    c->load[shard->owner] += shard->n;
    c->shards->shard[c->shards->shards++] = *shard;
}

static int least_loaded(const struct cutting *c)
{
    int owner = 0;

    for (int i = 1; i < c->owners; i++) {
        owner = c->load[i] < c->load[owner] ? i : owner;
    }
    return owner;
}

/* Adds a small tensor to the previous shard if that consists of small tensors, too, and has room.
 * Returns whether it did. */
static int joined(struct cutting *c, size_t at, size_t n)
{
    struct cmn_shard *last = c->shards->shards ? &c->shards->shard[c->shards->shards - 1] : NULL;

    if (!last || !last->exact || at + n - last->at > TOGETHER) {
        return 0;
    }
    c->load[last->owner] += at + n - last->at - last->n;
    last->n = at + n - last->at;
    return 1;
}

static void cut_tensor(struct cutting *c, size_t at, const struct cmn_span *tensor,
                       int whole_tensors)
{
    struct cmn_shard shard = {.at = at, .n = tensor->n};

    if (tensor->n < CMN_SHARD_EXACT_BELOW) {
        if (!joined(c, at, tensor->n)) {
            shard.owner = least_loaded(c);
            shard.exact = 1;
            add(c, &shard);
        }
        return;
    }
    if (whole_tensors || c->owners == 1) {
        shard.rows = tensor->rows;
        shard.owner = least_loaded(c);
        add(c, &shard);
        return;
    }
    for (shard.owner = 0; shard.owner < c->owners; shard.owner++) {
        cmn_slice(tensor->n, c->owners, shard.owner, &shard.at, &shard.n);
        shard.at += at;
        if (shard.n) {
            add(c, &shard);
        }
    }
}

void cmn_shards_open(struct cmn_shards *p, const struct cmn_span *tensor, int tensors,
                     const struct cmn_span *block, size_t metrics, int owners, int whole_tensors)
{
    struct cutting c = {p, cmn_calloc((size_t)owners, sizeof *c.load), owners};
    struct cmn_shard last = {.at = block->n, .n = metrics, .exact = 1};

    p->shards = 0;
    p->shard = cmn_calloc((size_t)tensors * (size_t)owners + 1, sizeof *p->shard);
    for (int i = 0; i < tensors; i++) {
        cut_tensor(&c, (size_t)(tensor[i].data - block->data), &tensor[i], whole_tensors);
    }
    add(&c, &last);
    free(c.load);
}

void cmn_shards_close(struct cmn_shards *p)
{
    free(p->shard);
    p->shard = NULL;
    p->shards = 0;
}
