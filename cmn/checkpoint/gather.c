#include "checkpoint/gather.h"

#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/reshard.h"
#include "mpi/call.h"

enum { TAG = 7 };

static void send(const void *data, size_t bytes, int to, const struct cmn_topology *t)
{
    cmn_mpi_send(data, bytes, to, TAG, t->world);
}

static void receive(void *data, size_t bytes, int from, const struct cmn_topology *t)
{
    cmn_mpi_recv(data, bytes, from, TAG, t->world);
}

/* Receives the list of a rank's items. The caller frees it. */
static struct cmn_checkpoint_item *receive_items(int *items, int from, const struct cmn_topology *t)
{
    struct cmn_checkpoint_item *item;

    receive(items, sizeof *items, from, t);
    item = cmn_calloc((size_t)*items + 1, sizeof *item);
    receive(item, (size_t)*items * sizeof *item, from, t);
    return item;
}

static void send_items(const struct cmn_checkpoint_item *item, int items,
                       const struct cmn_topology *t)
{
    send(&items, sizeof items, 0, t);
    send(item, (size_t)items * sizeof *item, 0, t);
}

/* ---- to rank 0 ---- */

/* The lists of all ranks, on rank 0. Rank r has n[r] items, which begin at item[at[r]]. */
struct lists {
    struct cmn_checkpoint_item *item;
    int *n, *at;
};

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

/* Gathers the descriptions of all items, without their data, on rank 0. */
static void gather_lists(struct lists *all, const struct cmn_checkpoint_item *item, int items,
                         const struct cmn_topology *t)
{
    MPI_Datatype type;

    memset(all, 0, sizeof *all);
    all->n = cmn_calloc((size_t)t->size, sizeof *all->n);
    all->at = cmn_calloc((size_t)t->size + 1, sizeof *all->at);
    MPI_CALL(MPI_Gather(&items, 1, MPI_INT, all->n, 1, MPI_INT, 0, t->world));
    for (int r = 0; r < t->size; r++) {
        all->at[r + 1] = all->at[r] + all->n[r];
    }
    all->item = cmn_calloc((size_t)all->at[t->size] + 1, sizeof *all->item);
    MPI_CALL(MPI_Type_contiguous((int)sizeof *item, MPI_BYTE, &type));
    MPI_CALL(MPI_Type_commit(&type));
    MPI_CALL(MPI_Gatherv(item, items, type, all->item, all->n, all->at, type, 0, t->world));
    MPI_Type_free(&type);
}

static void free_lists(struct lists *all)
{
    free(all->item);
    free(all->n);
    free(all->at);
}

static int rank_of(const struct cmn_checkpoint_item *item, int rank)
{
    return item->own ? rank : CMN_ALL_RANKS;
}

static int name_tensors(struct cmn_snapshot *to, const struct cmn_checkpoint_item *item, int items,
                        int rank)
{
    for (int i = 0; i < items; i++) {
        if (cmn_snapshot_tensor(to, item[i].name, rank_of(&item[i], rank),
                                item[i].first + item[i].bytes)) {
            return -1;
        }
    }
    return 0;
}

/* Copies a rank's parts into their tensors: rank 0's from its own memory, others' from messages. */
static void fill(struct cmn_snapshot *to, const struct cmn_checkpoint_item *item, int items,
                 int rank, const struct cmn_topology *t)
{
    for (int i = 0; i < items; i++) {
        char *tensor = cmn_snapshot_data(to, item[i].name, rank_of(&item[i], rank));
        if (rank) {
            receive(tensor + item[i].first, item[i].bytes, rank, t);
        } else if (item[i].bytes) {
            memcpy(tensor + item[i].first, item[i].data, item[i].bytes);
        }
    }
}

int cmn_checkpoint_gather(const struct cmn_checkpoint_item *item, int items,
                          struct cmn_snapshot *to, const struct cmn_topology *t)
{
    struct cmn_checkpoint_item *here = written_here(item, &items);
    struct lists all;
    int kept = to != NULL;

    gather_lists(&all, here, items, t);
    for (int r = 0; r < t->size && kept; r++) {
        kept = !name_tensors(to, all.item + all.at[r], all.n[r], r);
    }
    kept = kept && !cmn_snapshot_allocate(to);
    cmn_mpi_bcast(&kept, 1, MPI_INT, t->world);
    for (int r = 0; r < t->size && kept && t->rank == 0; r++) {
        fill(to, all.item + all.at[r], all.n[r], r, t);
    }
    for (int i = 0; i < items && kept && t->rank; i++) {
        send(here[i].data, here[i].bytes, 0, t);
    }
    free_lists(&all);
    free(here);
    return kept || t->rank ? 0 : -1;
}

/* ---- and back ---- */

/* Broadcasts rank 0's list of items of common tensors, without their data. Each rank frees it. */
static struct cmn_checkpoint_item *list_of_rank_0(const struct cmn_checkpoint_item *item,
                                                  int *items, const struct cmn_topology *t)
{
    struct cmn_checkpoint_item *list;
    int n = 0;

    cmn_mpi_bcast(items, 1, MPI_INT, t->world);
    list = cmn_calloc((size_t)*items + 1, sizeof *list);
    for (int i = 0; i < *items && t->rank == 0; i++) {
        if (!item[i].own) {
            list[n++] = item[i];
        }
    }
    cmn_mpi_bcast(&n, 1, MPI_INT, t->world);
    cmn_mpi_bcast(list, (size_t)n * sizeof *list, MPI_BYTE, t->world);
    *items = n;
    return list;
}

static int is_same_part(const struct cmn_checkpoint_item *a, const struct cmn_checkpoint_item *b)
{
    return !strcmp(a->name, b->name) && a->own == b->own && a->first == b->first &&
           a->bytes == b->bytes && a->merge == b->merge && a->of_exchange == b->of_exchange &&
           a->optional == b->optional;
}

/* Returns the index of an equal item in a list, or -1. The search begins at `begin` and wraps
 * around. */
static int place_of(const struct cmn_checkpoint_item *wanted,
                    const struct cmn_checkpoint_item *item, int items, int begin)
{
    for (int i = 0; i < items; i++) {
        if (is_same_part(wanted, &item[(begin + i) % items])) {
            return (begin + i) % items;
        }
    }
    return -1;
}

/* Broadcasts the data of each item of rank 0 that all other ranks have with the same description.
 * Sets served[] of these items to 1. This saves a message per item and rank. */
static void serve_all(struct cmn_reshard *r, struct cmn_checkpoint_item *item, int items,
                      char *served, const struct cmn_topology *t)
{
    int n = items, next = 0;
    struct cmn_checkpoint_item *list = list_of_rank_0(item, &n, t);
    int *place = cmn_calloc((size_t)n + 1, sizeof *place);
    int *at_all = cmn_calloc((size_t)n + 1, sizeof *at_all);

    for (int i = 0; i < n; i++) {
        place[i] = place_of(&list[i], item, items, next);
        next = place[i] >= 0 ? place[i] + 1 : next;
        at_all[i] = place[i] >= 0;
    }
    MPI_CALL(MPI_Allreduce(MPI_IN_PLACE, at_all, n, MPI_INT, MPI_MIN, t->world));
    for (int i = 0; i < n && t->rank == 0; i++) {
        const void *data = at_all[i] ? cmn_reshard_find(r, &list[i], 0, &list[i].got) : NULL;
        if (data) {
            memcpy(list[i].data, data, list[i].got);
        }
    }
    cmn_mpi_bcast(list, (size_t)n * sizeof *list, MPI_BYTE, t->world);
    for (int i = 0; i < n; i++) {
        if (at_all[i]) {
            item[place[i]].got = list[i].got;
            served[place[i]] = 1;
            cmn_mpi_bcast(item[place[i]].data, list[i].got, MPI_BYTE, t->world);
        }
    }
    free(list);
    free(place);
    free(at_all);
}

static void serve_self(struct cmn_reshard *r, struct cmn_checkpoint_item *item, int items)
{
    for (int i = 0; i < items; i++) {
        const void *data = cmn_reshard_find(r, &item[i], 0, &item[i].got);
        if (item[i].got) {
            memcpy(item[i].data, data, item[i].got);
        }
    }
}

static void serve(struct cmn_reshard *r, int rank, const struct cmn_topology *t)
{
    int items;
    struct cmn_checkpoint_item *item = receive_items(&items, rank, t);

    for (int i = 0; i < items; i++) {
        size_t bytes;
        const void *data = cmn_reshard_find(r, &item[i], rank, &bytes);
        send(&bytes, sizeof bytes, rank, t);
        send(data, bytes, rank, t);
    }
    free(item);
}

static void ask(struct cmn_checkpoint_item *item, int items, const struct cmn_topology *t)
{
    send_items(item, items, t);
    for (int i = 0; i < items; i++) {
        receive(&item[i].got, sizeof item[i].got, 0, t);
        receive(item[i].data, item[i].got, 0, t);
    }
}

static void scale(const struct cmn_checkpoint_item *item)
{
    float *x = item->data;

    /* Items that do not hold floats have scale 1 and stay as they are. */
    for (size_t i = 0; (item->scale < 1 || item->scale > 1) && i < item->got / sizeof *x; i++) {
        x[i] *= item->scale;
    }
}

/* Serves the remaining items: each rank sends its list to rank 0, which answers rank by rank. */
static void serve_each(struct cmn_reshard *r, struct cmn_checkpoint_item *item, int items,
                       const struct cmn_topology *t)
{
    if (t->rank) {
        ask(item, items, t);
    } else {
        serve_self(r, item, items);
    }
    for (int i = 1; i < t->size && !t->rank; i++) {
        serve(r, i, t);
    }
}

void cmn_checkpoint_scatter(struct cmn_checkpoint_item *item, int items,
                            const struct cmn_checkpoint_file *from,
                            const struct cmn_checkpoint_origin *by, const struct cmn_topology *t)
{
    struct cmn_reshard r = {from, by, NULL};
    struct cmn_checkpoint_item *rest = cmn_calloc((size_t)items + 1, sizeof *rest);
    char *served = cmn_calloc((size_t)items + 1, 1);
    int n = 0;

    serve_all(&r, item, items, served, t);
    for (int i = 0; i < items; i++) {
        if (!served[i]) {
            rest[n++] = item[i];
        }
    }
    serve_each(&r, rest, n, t);
    cmn_reshard_end(&r);
    for (int i = 0, next = 0; i < items; i++) {
        item[i].got = served[i] ? item[i].got : rest[next++].got;
        scale(&item[i]);
    }
    free(rest);
    free(served);
}
