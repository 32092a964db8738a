#define XXH_INLINE_ALL
#include "checkpoint/gather.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "checkpoint/reshard.h"
#include "base/log.h"

enum { TAG = 7, PIECE = 4 << 20 };

/* What goes before the bytes of a part. Only what lies between the zeros at its ends is sent. */
struct head {
    char name[CMN_SECTION_NAME];
    uint64_t bytes, lead, length, hash;
    uint64_t same; /* as rank 0's: nothing is sent */
};

static int move(void *data, size_t bytes, int with, int send, const struct cmn_topology *t)
{
    for (size_t at = 0; at < bytes; at += PIECE) {
        int n = (int)(bytes - at < PIECE ? bytes - at : PIECE);
        char *piece = (char *)data + at;
        int code = send ? MPI_Send(piece, n, MPI_BYTE, with, TAG, t->world)
                        : MPI_Recv(piece, n, MPI_BYTE, with, TAG, t->world, MPI_STATUS_IGNORE);
        if (cmn_mpi_check(code, send ? "MPI_Send" : "MPI_Recv")) {
            return -1;
        }
    }
    return 0;
}

static int give(const void *data, size_t bytes, int to, const struct cmn_topology *t)
{
    return move((void *)(uintptr_t)data, bytes, to, 1, t);
}

static int take(void *data, size_t bytes, int from, const struct cmn_topology *t)
{
    return move(data, bytes, from, 0, t);
}

/* ---- to rank 0 ---- */

static void measure(const struct cmn_checkpoint_item *part, struct head *head)
{
    const unsigned char *data = part->data;
    size_t first = 0, end = part->bytes;
    uint64_t word;

    while (end - first >= sizeof word && !(memcpy(&word, data + first, sizeof word), word)) {
        first += sizeof word;
    }
    while (end - first >= sizeof word &&
           !(memcpy(&word, data + end - sizeof word, sizeof word), word)) {
        end -= sizeof word;
    }
    memcpy(head->name, part->name, sizeof head->name);
    head->bytes = part->bytes;
    head->lead = first;
    head->length = end - first;
    head->hash = XXH3_64bits(data, part->bytes);
}

static void find_same(struct head *head, int heads, const struct head *zero, int zeros)
{
    for (int i = 0; i < heads; i++) {
        for (int k = 0; k < zeros; k++) {
            head[i].same |= !strcmp(head[i].name, zero[k].name) && head[i].bytes == zero[k].bytes &&
                            head[i].hash == zero[k].hash;
        }
    }
}

static int send_parts(const struct cmn_checkpoint_item *part, struct head *head, int parts,
                      const struct cmn_topology *t)
{
    struct head *zero;
    int zeros = 0;

    if (cmn_mpi_check(MPI_Bcast(&zeros, 1, MPI_INT, 0, t->world), "MPI_Bcast")) {
        return -1;
    }
    zero = calloc((size_t)zeros + 1, sizeof *zero);
    if (!zero) {
        return cmn_fail("out of memory");
    }
    cmn_mpi_bcast(zero, (size_t)zeros * sizeof *zero, MPI_BYTE, t->world);
    find_same(head, parts, zero, zeros);
    free(zero);
    if (give(&parts, sizeof parts, 0, t) || give(head, (size_t)parts * sizeof *head, 0, t)) {
        return -1;
    }
    for (int i = 0; i < parts; i++) {
        if (!head[i].same &&
            give((const char *)part[i].data + head[i].lead, head[i].length, 0, t)) {
            return -1;
        }
    }
    return 0;
}

/* What the snapshot has no memory for is received all the same: its rank waits to be rid of it. */
static int drain(size_t bytes, int from, const struct cmn_topology *t)
{
    static char nowhere[PIECE];

    for (size_t at = 0; at < bytes; at += PIECE) {
        if (take(nowhere, bytes - at < PIECE ? bytes - at : PIECE, from, t)) {
            return -1;
        }
    }
    return 0;
}

static int receive_part(const struct head *head, int from, struct cmn_snapshot *to, int *kept,
                        const struct cmn_topology *t)
{
    char *data = NULL;

    if (head->same) {
        *kept = *kept && !cmn_snapshot_same(to, head->name, from, 0);
        return 0;
    }
    if (*kept) {
        data = cmn_snapshot_room(to, head->name, from, head->bytes);
        *kept = data != NULL;
    }
    if (!data) {
        return drain(head->length, from, t);
    }
    memset(data, 0, head->lead);
    memset(data + head->lead + head->length, 0, head->bytes - head->lead - head->length);
    return take(data + head->lead, head->length, from, t);
}

static int receive_parts(int from, struct cmn_snapshot *to, int *kept, const struct cmn_topology *t)
{
    struct head *head;
    int parts = 0, result;

    if (take(&parts, sizeof parts, from, t)) {
        return -1;
    }
    head = calloc((size_t)parts + 1, sizeof *head);
    if (!head) {
        return cmn_fail("out of memory");
    }
    result = take(head, (size_t)parts * sizeof *head, from, t);
    for (int i = 0; i < parts && !result; i++) {
        result = receive_part(&head[i], from, to, kept, t);
    }
    free(head);
    return result;
}

int cmn_checkpoint_gather(const struct cmn_checkpoint_item *part, int parts,
                          struct cmn_snapshot *to, int *kept, const struct cmn_topology *t)
{
    struct head *head = calloc((size_t)parts + 1, sizeof *head);
    int result = 0;

    *kept = 1;
    if (!head) {
        return cmn_fail("out of memory");
    }
    for (int i = 0; i < parts; i++) {
        measure(&part[i], &head[i]);
    }
    if (t->rank != 0) {
        result = send_parts(part, head, parts, t);
        free(head);
        return result;
    }
    *kept = to != NULL;
    for (int i = 0; i < parts && *kept; i++) {
        *kept = !cmn_snapshot_add(to, part[i].name, 0, part[i].data, part[i].bytes);
    }
    MPI_CALL(MPI_Bcast(&parts, 1, MPI_INT, 0, t->world));
    cmn_mpi_bcast(head, (size_t)parts * sizeof *head, MPI_BYTE, t->world);
    for (int i = 1; i < t->size && !result; i++) {
        result = receive_parts(i, to, kept, t);
    }
    free(head);
    return result ? -1 : 0;
}

/* ---- and back ---- */

static int serve_self(struct cmn_reshard *m, struct cmn_checkpoint_item *part, int parts)
{
    for (int i = 0; i < parts; i++) {
        const void *data;
        if (cmn_reshard_find(m, &part[i], 0, &data, &part[i].got)) {
            return -1;
        }
        if (data) {
            memcpy(part[i].data, data, part[i].got);
        }
    }
    return 0;
}

static int serve(struct cmn_reshard *m, int rank, const struct cmn_topology *t)
{
    struct cmn_checkpoint_item *want;
    int parts = 0, result;

    if (take(&parts, sizeof parts, rank, t)) {
        return -1;
    }
    want = calloc((size_t)parts + 1, sizeof *want);
    if (!want) {
        return cmn_fail("out of memory");
    }
    result = take(want, (size_t)parts * sizeof *want, rank, t);
    for (int i = 0; i < parts && !result; i++) {
        const void *data;
        size_t bytes;
        result = cmn_reshard_find(m, &want[i], rank, &data, &bytes) ||
                 give(&bytes, sizeof bytes, rank, t) || give(data, bytes, rank, t);
    }
    free(want);
    return result ? -1 : 0;
}

static int ask(struct cmn_checkpoint_item *part, int parts, const struct cmn_topology *t)
{
    if (give(&parts, sizeof parts, 0, t) || give(part, (size_t)parts * sizeof *part, 0, t)) {
        return -1;
    }
    for (int i = 0; i < parts; i++) {
        if (take(&part[i].got, sizeof part[i].got, 0, t) || take(part[i].data, part[i].got, 0, t)) {
            return -1;
        }
    }
    return 0;
}

static void rescale(struct cmn_checkpoint_item *part, const struct cmn_checkpoint_origin *by)
{
    float *x = part->data;
    int floats = part->merge == CMN_MERGE_SUM || part->merge == CMN_MERGE_FIRST;

    /* 1 changes nothing, and what is not floats has it. */
    for (size_t i = 0;
         floats && !by->same && (part->scale < 1 || part->scale > 1) && i < part->bytes / sizeof *x;
         i++) {
        x[i] = part->scale > 0 ? x[i] * part->scale : 0;
    }
}

int cmn_checkpoint_scatter(struct cmn_checkpoint_item *part, int parts,
                           const struct cmn_checkpoint_file *from,
                           const struct cmn_checkpoint_origin *by, const struct cmn_topology *t)
{
    struct cmn_reshard m = {from, by, NULL};
    int result;

    result = t->rank ? ask(part, parts, t) : serve_self(&m, part, parts);
    for (int i = 1; i < t->size && !t->rank && !result; i++) {
        result = serve(&m, i, t);
    }
    cmn_reshard_end(&m);
    for (int i = 0; i < parts && !result; i++) {
        rescale(&part[i], by);
    }
    return result ? -1 : 0;
}
