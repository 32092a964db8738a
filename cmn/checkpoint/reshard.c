#include "checkpoint/reshard.h"

#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/memory.h"

struct cmn_merged {
    struct cmn_merged *next;
    struct cmn_checkpoint_tensor tensor;
    float *data;
};

static const struct cmn_checkpoint_tensor *tensor_of(const struct cmn_reshard *r, const char *name,
                                                     int rank)
{
    return cmn_checkpoint_tensor(r->from, name, rank);
}

/* Adds the n floats of each old rank to sum[], in double precision and in the order of the ranks.
 * Ends the job if their lengths differ. */
static void add_all(const struct cmn_reshard *r, const char *name, double *sum, size_t n)
{
    for (int rank = 0; rank < r->by->ranks; rank++) {
        const struct cmn_checkpoint_tensor *t = tensor_of(r, name, rank);
        const float *x = t ? t->data : NULL;
        if (!x || t->bytes != n * sizeof *x) {
            cmn_fatal("%s: tensor %s of rank %d is not as long as rank 0's", r->from->path, name,
                      rank);
        }
        for (size_t i = 0; i < n; i++) {
            sum[i] += (double)x[i];
        }
    }
}

/* Returns the sum or the mean of the old ranks' tensors; NULL if there is no such tensor. */
static const struct cmn_checkpoint_tensor *merged(struct cmn_reshard *r, const char *name, int mean)
{
    const struct cmn_checkpoint_tensor *first;
    struct cmn_merged *m = r->merged;
    double *sum;
    size_t n;

    while (m && strcmp(m->tensor.name, name)) {
        m = m->next;
    }
    if (m) {
        return &m->tensor;
    }
    first = tensor_of(r, name, 0);
    if (!first) {
        return NULL;
    }
    n = first->bytes / sizeof *m->data;
    m = cmn_calloc(1, sizeof *m);
    m->data = cmn_calloc(n + 1, sizeof *m->data);
    sum = cmn_calloc(n + 1, sizeof *sum);
    add_all(r, name, sum, n);
    for (size_t i = 0; i < n; i++) {
        m->data[i] = (float)(mean ? sum[i] / r->by->ranks : sum[i]);
    }
    free(sum);
    m->tensor = *first;
    m->tensor.data = m->data;
    m->next = r->merged;
    r->merged = m;
    return &m->tensor;
}

const void *cmn_reshard_find(struct cmn_reshard *r, const struct cmn_checkpoint_item *item,
                             int rank, size_t *bytes)
{
    const struct cmn_checkpoint_origin *by = r->by;
    int is_same = by->same_ranks && (by->same_nodes || !item->of_exchange);
    const struct cmn_checkpoint_tensor *t;
    size_t there;

    *bytes = 0;
    if (!is_same && item->merge == CMN_MERGE_DROP) {
        return NULL;
    }
    if (!item->own) {
        t = tensor_of(r, item->name, CMN_ALL_RANKS);
    } else if (is_same || item->merge == CMN_MERGE_FIRST) {
        t = tensor_of(r, item->name, is_same ? rank : 0);
    } else {
        t = merged(r, item->name, item->merge == CMN_MERGE_MEAN);
    }
    there = t && t->bytes > item->first ? t->bytes - item->first : 0;
    *bytes = there < item->bytes ? there : item->bytes;
    if (*bytes < item->bytes && !item->optional) {
        cmn_fatal("%s: tensor %s holds %zu bytes for rank %d, which needs %zu: it is not a "
                  "checkpoint of this training",
                  r->from->path, item->name, there, rank, item->bytes);
    }
    return *bytes ? (const char *)t->data + item->first : NULL;
}

void cmn_reshard_end(struct cmn_reshard *r)
{
    while (r->merged) {
        struct cmn_merged *m = r->merged;
        r->merged = m->next;
        free(m->data);
        free(m);
    }
}
