#include "optimizers/buckets.h"

#include <stdlib.h>

#include "base/memory.h"

void cmn_buckets_open(struct cmn_buckets *b, const struct cmn_options *o,
                      const struct cmn_gradients *g, int layers)
{
    int span = 0;

    *b = (struct cmn_buckets){.layers = layers};
    cmn_bucket_tuner_open(&b->tuner, o, g->exchange.block.n);
    b->final = cmn_calloc((size_t)layers + 1, sizeof *b->final);
    for (int i = 0; i < g->tensors; i++) {
        const struct cmn_tensor *t = &g->tensor[i];
        if (t->kind == CMN_GRADIENT) {
            const struct cmn_span *x = &g->exchange.tensor[span++];
            b->final[t->layer] = (size_t)(x->data - g->exchange.block.data) + x->n;
        }
    }
    /* A layer without gradients ends where the later ones do. */
    for (int i = layers - 1; i >= 0; i--) {
        b->final[i] = b->final[i] > b->final[i + 1] ? b->final[i] : b->final[i + 1];
    }
}

void cmn_buckets_close(struct cmn_buckets *b)
{
    free(b->final);
    b->final = NULL;
}

size_t cmn_buckets_end(const struct cmn_buckets *b, int i)
{
    size_t final = b->final[i];

    return b->floats && final > b->begun && final - b->begun >= b->floats ? final : 0;
}

int cmn_buckets_begin(struct cmn_buckets *b, const struct cmn_exchange *x,
                      const struct cmn_communicator *c, void *self, int i)
{
    size_t end = cmn_buckets_end(b, i);

    if (end) {
        b->begun = end;
        c->begin(self, x, end);
    }
    return end > 0;
}
