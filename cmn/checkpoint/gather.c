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

/* The items of a rank. The caller frees. */
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

static int rank_of(const struct cmn_checkpoint_item *item, int rank)
{
    return item->own ? rank : CMN_ALL_RANKS;
}

static int name_tensors(struct cmn_snapshot *to, const struct cmn_checkpoint_item *item, int items,
                        int rank)
{
    for (int i = 0; i < items; i++) {
        if (!item[i].elsewhere && cmn_snapshot_tensor(to, item[i].name, rank_of(&item[i], rank),
                                                      item[i].first + item[i].bytes)) {
            return -1;
        }
    }
    return 0;
}

/* A rank's parts to their places; `from`: rank 0's own memory, or a message. */
static void fill(struct cmn_snapshot *to, const struct cmn_checkpoint_item *item, int items,
                 int rank, const struct cmn_topology *t)
{
    for (int i = 0; i < items; i++) {
        char *tensor;
        if (item[i].elsewhere) {
            continue;
        }
        tensor = cmn_snapshot_data(to, item[i].name, rank_of(&item[i], rank));
        if (rank) {
            receive(tensor + item[i].first, item[i].bytes, rank, t);
        } else if (item[i].bytes) {
            memcpy(tensor + item[i].first, item[i].data, item[i].bytes);
        }
    }
}

static int gather_here(const struct cmn_checkpoint_item *item, int items, struct cmn_snapshot *to,
                       const struct cmn_topology *t)
{
    struct cmn_checkpoint_item **of = cmn_calloc((size_t)t->size, sizeof *of);
    int *n = cmn_calloc((size_t)t->size, sizeof *n);
    int kept = to && !name_tensors(to, item, items, 0);

    for (int r = 1; r < t->size; r++) {
        of[r] = receive_items(&n[r], r, t);
        kept = kept && !name_tensors(to, of[r], n[r], r);
    }
    kept = kept && !cmn_snapshot_allocate(to);
    cmn_mpi_bcast(&kept, 1, MPI_INT, t->world);
    if (kept) {
        fill(to, item, items, 0, t);
    }
    for (int r = 1; r < t->size; r++) {
        if (kept) {
            fill(to, of[r], n[r], r, t);
        }
        free(of[r]);
    }
    free(of);
    free(n);
    return kept ? 0 : -1;
}

int cmn_checkpoint_gather(const struct cmn_checkpoint_item *item, int items,
                          struct cmn_snapshot *to, const struct cmn_topology *t)
{
    int kept;

    if (t->rank == 0) {
        return gather_here(item, items, to, t);
    }
    send_items(item, items, t);
    cmn_mpi_bcast(&kept, 1, MPI_INT, t->world);
    for (int i = 0; i < items && kept; i++) {
        if (!item[i].elsewhere) {
            send(item[i].data, item[i].bytes, 0, t);
        }
    }
    return 0;
}

/* ---- and back ---- */

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

    /* Items that are no floats have scale 1, which changes nothing. */
    for (size_t i = 0; (item->scale < 1 || item->scale > 1) && i < item->got / sizeof *x; i++) {
        x[i] *= item->scale;
    }
}

void cmn_checkpoint_scatter(struct cmn_checkpoint_item *item, int items,
                            const struct cmn_checkpoint_file *from,
                            const struct cmn_checkpoint_origin *by, const struct cmn_topology *t)
{
    struct cmn_reshard r = {from, by, NULL};

    if (t->rank) {
        ask(item, items, t);
    } else {
        serve_self(&r, item, items);
    }
    for (int i = 1; i < t->size && !t->rank; i++) {
        serve(&r, i, t);
    }
    cmn_reshard_end(&r);
    for (int i = 0; i < items; i++) {
        scale(&item[i]);
    }
}
