#include "checkpoint/gather.h"

#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/memory.h"
#include "mpi/call.h"

enum { TAG = 7 };

/* ---- to rank 0 ---- */

/* Returns the items that are to be written from this rank. Where replicas are equal, only rank 0
 * has many. The caller frees the list. */
static struct cmn_checkpoint_item *written_here(const struct cmn_checkpoint_item *item, int *items)
{
    struct cmn_checkpoint_item *here = cmn_calloc((size_t)*items + 1, sizeof *here);
    int n = 0;

    for (int i = 0; i < *items; i++) {
        if (!item[i].elsewhere) {
            here[n++] = item[i];
        }
    }
    *items = n;
    return here;
}

/* Returns, on rank 0, the lists of all ranks one after the other: rank r's begins at item at[r] and
 * ends at at[r + 1]. Other ranks return an empty list. The caller frees it. */
static struct cmn_checkpoint_item *gather_lists(const struct cmn_checkpoint_item *item, int items,
                                                int *at, const struct cmn_topology *t)
{
    struct cmn_checkpoint_item *all;
    int *n = cmn_calloc((size_t)t->size, sizeof *n);
    MPI_Datatype type;

    MPI_CALL(MPI_Gather(&items, 1, MPI_INT, n, 1, MPI_INT, 0, t->world));
    for (int r = 0; r < t->size; r++) {
        at[r + 1] = at[r] + n[r];
    }
    all = cmn_calloc((size_t)at[t->size] + 1, sizeof *all);
    MPI_CALL(MPI_Type_contiguous((int)sizeof *item, MPI_BYTE, &type));
    MPI_CALL(MPI_Type_commit(&type));
    MPI_CALL(MPI_Gatherv(item, items, type, all, n, at, type, 0, t->world));
    MPI_Type_free(&type);
    free(n);
    return all;
}

static int rank_of(const struct cmn_checkpoint_item *item, int rank)
{
    return item->own ? rank : CMN_ALL_RANKS;
}

/* Copies a rank's part to its tensor: rank 0's from its own memory, others' from messages. */
static void fill(struct cmn_snapshot *to, const struct cmn_checkpoint_item *item, int rank,
                 const struct cmn_topology *t)
{
    char *part = cmn_snapshot_data(to, item->name, rank_of(item, rank));

    part += item->first;
    if (rank) {
        cmn_mpi_recv(part, item->bytes, rank, TAG, t->world);
    } else if (item->bytes) {
        memcpy(part, item->data, item->bytes);
    }
}

int cmn_checkpoint_gather(const struct cmn_checkpoint_item *item, int items,
                          struct cmn_snapshot *to, const struct cmn_topology *t)
{
    struct cmn_checkpoint_item *here = written_here(item, &items), *all;
    int *at = cmn_calloc((size_t)t->size + 1, sizeof *at);
    int kept = to != NULL;

    all = gather_lists(here, items, at, t);
    for (int r = 0; r < t->size; r++) {
        for (int i = at[r]; i < at[r + 1] && kept; i++) {
            kept = !cmn_snapshot_tensor(to, all[i].name, rank_of(&all[i], r),
                                        all[i].first + all[i].bytes);
        }
    }
    kept = kept && !cmn_snapshot_allocate(to);
    cmn_mpi_bcast(&kept, 1, MPI_INT, t->world);
    for (int r = 0; r < t->size && kept; r++) {
        for (int i = at[r]; i < at[r + 1]; i++) {
            fill(to, &all[i], r, t);
        }
    }
    for (int i = 0; i < items && kept && t->rank; i++) {
        cmn_mpi_send(here[i].data, here[i].bytes, 0, TAG, t->world);
    }
    free(all);
    free(at);
    free(here);
    return kept || t->rank ? 0 : -1;
}

/* ---- and back ---- */

/* Returns rank 0's file as all ranks see it: its path and the list of its tensors, with their data
 * only on rank 0. The caller frees both. */
static struct cmn_checkpoint_file share(const struct cmn_checkpoint_file *from,
                                        const struct cmn_topology *t)
{
    struct cmn_checkpoint_file f = {.tensors = from ? from->tensors : 0};
    size_t path = from && from->path ? strlen(from->path) : 0;

    cmn_mpi_bcast(&f.tensors, sizeof f.tensors, MPI_BYTE, t->world);
    cmn_mpi_bcast(&path, sizeof path, MPI_BYTE, t->world);
    f.path = cmn_calloc(path + 1, 1);
    f.tensor = cmn_calloc(f.tensors + 1, sizeof *f.tensor);
    if (from) {
        memcpy(f.path, from->path ? from->path : "", path);
        memcpy(f.tensor, from->tensor, f.tensors * sizeof *f.tensor);
    }
    cmn_mpi_bcast(f.path, path, MPI_CHAR, t->world);
    cmn_mpi_bcast(f.tensor, f.tensors * sizeof *f.tensor, MPI_BYTE, t->world);
    return f;
}

/* Returns whether a rank gets for the item what it had itself, or what all ranks had. */
static int is_same(const struct cmn_checkpoint_item *item, const struct cmn_checkpoint_origin *by)
{
    return by->same_ranks && (by->same_nodes || !item->of_exchange);
}

/* Returns the index of the tensor from which this rank fills the item, or -1 if it gets nothing.
 * Ends the job if the tensor is too short for the item. */
static long source_of(const struct cmn_checkpoint_item *item, const struct cmn_checkpoint_file *f,
                      const struct cmn_checkpoint_origin *by, int rank)
{
    const struct cmn_checkpoint_tensor *t;
    size_t there;

    if (!is_same(item, by) && item->merge == CMN_MERGE_DROP) {
        return -1;
    }
    t = cmn_checkpoint_tensor(f, item->name, rank_of(item, is_same(item, by) ? rank : 0));
    there = t && t->bytes > item->first ? t->bytes - item->first : 0;
    if (there < item->bytes) {
        cmn_fatal("%s: tensor %s holds %zu bytes for rank %d, which needs %zu: it is not a "
                  "checkpoint of this training",
                  f->path, item->name, there, rank, item->bytes);
    }
    return there ? t - f->tensor : -1;
}

/* Returns, for an item that each rank has for itself, the sum or the mean of the old ranks' floats:
 * summed in double precision and in the order of the ranks. Ends the job if their lengths differ.
 * The caller frees it. */
static float *merge(const struct cmn_checkpoint_item *item, const struct cmn_checkpoint_file *f,
                    int ranks)
{
    size_t bytes = cmn_checkpoint_tensor(f, item->name, 0)->bytes, n = bytes / sizeof(float);
    double *sum = cmn_calloc(n + 1, sizeof *sum);
    float *merged = cmn_calloc(n + 1, sizeof *merged);

    for (int rank = 0; rank < ranks; rank++) {
        const struct cmn_checkpoint_tensor *t = cmn_checkpoint_tensor(f, item->name, rank);
        const float *x = t ? t->data : NULL;
        if (!x || t->bytes != bytes) {
            cmn_fatal("%s: tensor %s of rank %d is not as long as rank 0's", f->path, item->name,
                      rank);
        }
        for (size_t i = 0; i < n; i++) {
            sum[i] += (double)x[i];
        }
    }
    for (size_t i = 0; i < n; i++) {
        merged[i] = (float)(item->merge == CMN_MERGE_MEAN ? sum[i] / ranks : sum[i]);
    }
    free(sum);
    return merged;
}

static void scale(const struct cmn_checkpoint_item *item)
{
    float *x = item->data;

    /* Items that do not hold floats have scale 1 and stay as they are. */
    for (size_t i = 0; (item->scale < 1 || item->scale > 1) && i < item->got / sizeof *x; i++) {
        x[i] *= item->scale;
    }
}

/* Brings tensor `which` from rank 0 to its rank, or to all ranks by a broadcast, which saves a
 * message per rank. `item` is what this rank fills with it, or NULL. Rank 0 has each item for which
 * tensors are merged, since such items are the same on all ranks. */
static void bring(const struct cmn_checkpoint_file *f, size_t which,
                  struct cmn_checkpoint_item *item, const struct cmn_checkpoint_origin *by,
                  const struct cmn_topology *t)
{
    const struct cmn_checkpoint_tensor *tensor = &f->tensor[which];
    int to_all = tensor->rank == CMN_ALL_RANKS || !by->same_ranks;
    int whole = item && !item->first && item->bytes >= tensor->bytes;
    float *merged = NULL;
    char *room;

    if (!to_all && t->rank && t->rank != tensor->rank) {
        return;
    }
    room = whole ? item->data : cmn_malloc(tensor->bytes + 1, 1);
    if (t->rank == 0) {
        if (item && item->own && !is_same(item, by) && item->merge != CMN_MERGE_FIRST) {
            merged = merge(item, f, by->ranks);
        }
        memcpy(room, merged ? merged : tensor->data, tensor->bytes);
        free(merged);
    }
    if (to_all) {
        cmn_mpi_bcast(room, tensor->bytes, MPI_BYTE, t->world);
    } else if (t->rank) {
        cmn_mpi_recv(room, tensor->bytes, 0, TAG, t->world);
    } else if (tensor->rank) {
        cmn_mpi_send(room, tensor->bytes, tensor->rank, TAG, t->world);
    }
    if (item) {
        item->got = tensor->bytes - item->first;
        item->got = item->got < item->bytes ? item->got : item->bytes;
        memmove(item->data, room + item->first, item->got);
        scale(item);
    }
    if (!whole) {
        free(room);
    }
}

void cmn_checkpoint_scatter(struct cmn_checkpoint_item *item, int items,
                            const struct cmn_checkpoint_file *from,
                            const struct cmn_checkpoint_origin *by, const struct cmn_topology *t)
{
    struct cmn_checkpoint_file f = share(from, t);
    /* For each tensor: this rank's item that is filled with it, and whether any rank has one. */
    struct cmn_checkpoint_item **taker = cmn_calloc(f.tensors + 1, sizeof(void *));
    int *taken = cmn_calloc(f.tensors + 1, sizeof *taken);

    for (int i = 0; i < items; i++) {
        long source = source_of(&item[i], &f, by, t->rank);
        item[i].got = 0;
        if (source >= 0) {
            taker[source] = &item[i];
            taken[source] = 1;
        }
    }
    MPI_CALL(MPI_Allreduce(MPI_IN_PLACE, taken, (int)f.tensors, MPI_INT, MPI_MAX, t->world));
    for (size_t i = 0; i < f.tensors; i++) {
        if (taken[i]) {
            bring(&f, i, taker[i], by, t);
        }
    }
    free(f.path);
    free(f.tensor);
    free(taker);
    free(taken);
}
