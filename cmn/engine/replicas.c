#include "engine/replicas.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "engine/batch_norm.h"
#include "engine/darknet_net.h"
#include "engine/darknet_tree.h"
#include "engine/net.h"
#include "engine/nonfinite.h"
#include "mpi/call.h"
#include "mpi/files.h"

enum { STATISTICS_TAG = 9 };

/* ---- equal from the start ---- */

/* The tensors come first, because a difference between them is the most useful one to report. */
char *cmn_replicas_describe(const struct cmn_gradients *g, const struct cmn_net *net,
                            const char *options)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);

    if (!out) {
        cmn_fatal("out of memory for the description of the network");
    }
    fprintf(out, "%d layers\n", cmn_net_layers(net));
    for (int i = 0; i < g->tensors; i++) {
        const struct cmn_tensor *t = &g->tensor[i];
        fprintf(out, "layer %d %s = %zu floats\n", t->layer, t->name, t->n);
    }
    for (int i = 0; i < cmn_net_layers(net); i++) {
        const layer *l = &cmn_network(net)->layers[i];
        fprintf(out, "layer %d: type %d, %d inputs, %d outputs\n", i, (int)l->type, l->inputs,
                l->outputs);
    }
    fprintf(out, "%s", options);
    fclose(out);
    return text;
}

void cmn_replicas_compare(const struct cmn_gradients *g, const struct cmn_net *net,
                          const char *options, const struct cmn_topology *t)
{
    char *here = cmn_replicas_describe(g, net, options);

    cmn_files_compare("network", here, t);
    free(here);
}

void cmn_replicas_broadcast(const struct cmn_gradients *g, struct cmn_net *net,
                            const struct cmn_topology *t)
{
    static const enum cmn_tensor_kind kinds[] = {CMN_GRADIENT, CMN_WEIGHT, CMN_STATISTIC,
                                                 CMN_MOMENT,   CMN_EMA,    CMN_FOLLOWED};
    unsigned long seen = cmn_net_seen(net);
    int updates = cmn_net_updates(net);

    MPI_CALL(MPI_Bcast(&seen, 1, MPI_UNSIGNED_LONG, 0, t->world));
    MPI_CALL(MPI_Bcast(&updates, 1, MPI_INT, 0, t->world));
    cmn_net_set_seen(net, seen);
    cmn_net_set_updates(net, updates);
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        cmn_gradients_pull(g, kinds[k]);
    }
    for (int i = 0; i < g->tensors; i++) {
        cmn_mpi_bcast(*g->tensor[i].at, g->tensor[i].n, MPI_FLOAT, t->world);
    }
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        cmn_gradients_push(g, kinds[k]);
    }
}

/* ---- averages ---- */

static int is_mean(const struct cmn_tensor *t)
{
    return t->kind == CMN_STATISTIC && !strcmp(t->name, "rolling_mean");
}

/* Merges the statistics of n filters over all ranks, and returns them in `room` or `mine`, which
 * have cmn_batch_norm_doubles(n) doubles each. `plain`: returns plain sums, for means over ranks that
 * all have the same weight.
 *
 * A binomial tree reduces to rank 0, then rank 0 broadcasts the result. After the round of `step`,
 * rank r, a multiple of 2 * step, has merged the statistics of the ranks r to r + 2 * step - 1. So
 * a rank receives at most ceil(log2 N) times the statistics' bytes, and needs memory for three of
 * them. The order of the ranks decides the bits, which are rank 0's everywhere. */
static double *merge_over_ranks(double *mine, double *room, size_t n, int plain,
                                const struct cmn_topology *t)
{
    size_t doubles = cmn_batch_norm_doubles(n), bytes = doubles * sizeof *mine;
    double *theirs = cmn_malloc(doubles, sizeof *theirs), *merged = room;

    for (int step = 1; step < t->size; step *= 2) {
        const double *const part[] = {mine, theirs};
        double *before = mine;
        if (t->rank & step) {
            cmn_mpi_send(mine, bytes, t->rank - step, STATISTICS_TAG, t->world);
            break;
        }
        if (t->rank + step < t->size) {
            cmn_mpi_recv(theirs, bytes, t->rank + step, STATISTICS_TAG, t->world);
            (plain ? cmn_batch_norm_add : cmn_batch_norm_merge)(merged, part, 2, n);
            mine = merged;
            merged = before;
        }
    }
    cmn_mpi_bcast(mine, doubles, MPI_DOUBLE, t->world);
    free(theirs);
    return mine;
}

/* Merges all layers together: the means of all of them come first, then the squares. */
void cmn_replicas_average_statistics(const struct cmn_gradients *g, const struct cmn_topology *t)
{
    size_t n = cmn_gradients_floats(g, CMN_STATISTIC) / 2, doubles = cmn_batch_norm_doubles(n);
    double images = g->images > 0 && !g->plain_statistics ? g->images : 1;
    double *room, *to, *merged;

    if (t->size == 1 || n == 0) {
        return;
    }
    cmn_gradients_pull(g, CMN_STATISTIC);
    room = cmn_malloc(2 * doubles, sizeof *room);
    room[0] = images;
    to = room + 1;
    for (int i = 0; i < g->tensors; i++) {
        /* The variance follows the mean in the list (tensors.c). */
        for (size_t k = 0; is_mean(&g->tensor[i]) && k < g->tensor[i].n; k++, to++) {
            to[0] = (double)(*g->tensor[i].at)[k];
            to[n] = images * (double)(*g->tensor[i + 1].at)[k];
        }
    }
    merged = merge_over_ranks(room, room + doubles, n, g->plain_statistics, t);
    to = merged + 1;
    for (int i = 0; i < g->tensors; i++) {
        for (size_t k = 0; is_mean(&g->tensor[i]) && k < g->tensor[i].n; k++, to++) {
            (*g->tensor[i].at)[k] = (float)(to[0] / (g->plain_statistics ? merged[0] : 1));
            (*g->tensor[i + 1].at)[k] = (float)(to[n] / merged[0]);
        }
    }
    free(room);
    cmn_gradients_push(g, CMN_STATISTIC);
}

void cmn_replicas_roll_statistics(const struct cmn_gradients *g, const struct cmn_topology *t,
                                  float *rolling, const float *added, const int *first)
{
    int micro_batches = first[t->size];
    size_t n = cmn_gradients_floats(g, CMN_STATISTIC);
    float *all = cmn_malloc(n * (size_t)micro_batches + 1, sizeof *all), *next = all;
    int *count = cmn_calloc(2 * (size_t)t->size, sizeof *count), *place = count + t->size;

    for (int rank = 0; rank < t->size; rank++) {
        place[rank] = first[rank] * (int)n;
        count[rank] = (first[rank + 1] - first[rank]) * (int)n;
    }
    MPI_CALL(
        MPI_Allgatherv(added, count[t->rank], MPI_FLOAT, all, count, place, MPI_FLOAT, t->world));
    for (int m = 0; m < micro_batches; m++) {
        size_t at = 0;
        for (int i = 0; i < g->tensors; i++) {
            const struct cmn_tensor *x = &g->tensor[i];
            for (size_t k = 0; k < x->n && x->kind == CMN_STATISTIC; k++, at++) {
                rolling[at] = (float)x->keeps * rolling[at] + *next++;
            }
        }
    }
    cmn_gradients_unpack(g, CMN_STATISTIC, rolling);
    free(all);
    free(count);
}

void cmn_replicas_average_followed(const struct cmn_gradients *g, const struct cmn_topology *t)
{
    float *all = NULL, sum;

    for (int i = 0; i < g->tensors && t->size > 1; i++) {
        if (g->tensor[i].kind != CMN_FOLLOWED) {
            continue;
        }
        all = all ? all : cmn_malloc((size_t)t->size, sizeof *all);
        MPI_CALL(MPI_Allgather(*g->tensor[i].at, 1, MPI_FLOAT, all, 1, MPI_FLOAT, t->world));
        sum = 0;
        for (int k = 0; k < t->size; k++) {
            sum += all[k];
        }
        **g->tensor[i].at = sum / (float)t->size;
    }
    free(all);
}

void cmn_replicas_average_weights(const struct cmn_gradients *g, const struct cmn_topology *t)
{
    cmn_gradients_pull(g, CMN_WEIGHT);
    for (int i = 0; i < g->tensors; i++) {
        const struct cmn_tensor *x = &g->tensor[i];
        for (size_t at = 0; x->kind == CMN_WEIGHT && at < x->n; at += CMN_MPI_CHUNK) {
            size_t n = x->n - at < CMN_MPI_CHUNK ? x->n - at : CMN_MPI_CHUNK;
            MPI_CALL(
                MPI_Allreduce(MPI_IN_PLACE, *x->at + at, (int)n, MPI_FLOAT, MPI_SUM, t->world));
        }
        for (size_t k = 0; x->kind == CMN_WEIGHT && k < x->n; k++) {
            (*x->at)[k] /= (float)t->size;
        }
    }
    cmn_gradients_push(g, CMN_WEIGHT);
}

/* ---- equal in every bit ---- */

enum {
    CHUNK = 16384, /* floats that stay in a cache while they are read twice */
    LISTED = 8     /* ranks that a message names */
};

struct replica {
    char host[sizeof((struct cmn_topology *)0)->host];
    uint64_t all; /* hash of the tensors' hashes */
};

static uint64_t hash_tensor(const struct cmn_tensor *t, struct cmn_nonfinite *bad)
{
    uint64_t hash = 0;

    for (size_t at = 0; at < t->n; at += CHUNK) {
        size_t n = t->n - at < CHUNK ? t->n - at : CHUNK;
        const float *x = *t->at + at, *found;
        hash = XXH3_64bits_withSeed(x, n * sizeof *x, hash);
        if ((!bad->name || t->layer < bad->layer) && (found = cmn_nonfinite_find(x, n))) {
            *bad = (struct cmn_nonfinite){t->layer, t->name, *found};
        }
    }
    return hash;
}

/* Returns the number of the gradient whose weights x are, or -1. */
static int gradient_of(const struct cmn_gradients *g, const struct cmn_tensor *x)
{
    for (int i = 0; i < g->exchange.tensors; i++) {
        if (g->tensor[g->tensor_of[i]].weight == x->at) {
            return i;
        }
    }
    return -1;
}

/* Hashes each tensor of weights and returns their number. On a GPU those with a gradient are hashed
 * there, and pulled only if one of them is NaN or infinite; nothing changes the others, so the
 * host's copies are hashed. */
static size_t hash_weights(const struct cmn_gradients *g, uint64_t *hash, struct cmn_nonfinite *bad)
{
    uint64_t *there = g->on_gpu ? cmn_calloc((size_t)g->exchange.tensors + 1, sizeof *there) : NULL;
    size_t n = 0;

    if (there && g->ops->hash(g, there) >= 0) {
        cmn_gradients_pull(g, CMN_WEIGHT);
        cmn_nonfinite_tensor(g, CMN_WEIGHT, bad);
    }
    for (int i = 0; i < g->tensors; i++) {
        const struct cmn_tensor *x = &g->tensor[i];
        int gradient = there && x->kind == CMN_WEIGHT ? gradient_of(g, x) : -1;
        if (x->kind == CMN_WEIGHT) {
            hash[n++] = gradient < 0 ? hash_tensor(x, bad) : there[gradient];
        }
    }
    free(there);
    return n;
}

/* Returns whether all ranks have the same hash. One allreduce finds the maximum of the hashes and,
 * by their complements, the minimum. */
static int same_everywhere(uint64_t hash, const struct cmn_topology *t)
{
    uint64_t most[2] = {hash, ~hash};

    MPI_CALL(MPI_Allreduce(MPI_IN_PLACE, most, 2, MPI_UINT64_T, MPI_MAX, t->world));
    return most[0] == ~most[1];
}

/* Returns the lowest rank of the largest group of ranks with equal weights. */
static int find_usual(const struct replica *replica, int ranks)
{
    int best = 0, votes = 0;

    for (int i = 0; i < ranks; i++) {
        int n = 0;
        for (int j = 0; j < ranks; j++) {
            n += replica[j].all == replica[i].all;
        }
        if (n > votes) {
            best = i;
            votes = n;
        }
    }
    return best;
}

/* Returns the index of the tensor in which some rank differs from `usual`: the first one of the
 * lowest such layer. */
static int find_tensor(const struct cmn_gradients *g, const uint64_t *hash, int ranks, int usual,
                       size_t n)
{
    int best = -1;
    size_t k = 0;

    for (int i = 0; i < g->tensors; i++) {
        int differs = 0;
        if (g->tensor[i].kind != CMN_WEIGHT) {
            continue;
        }
        for (int r = 0; r < ranks; r++) {
            differs |= hash[(size_t)r * n + k] != hash[(size_t)usual * n + k];
        }
        k++;
        if (differs && (best < 0 || g->tensor[i].layer < g->tensor[best].layer)) {
            best = i;
        }
    }
    return best;
}

static int say_who(const struct cmn_gradients *g, const struct cmn_net *net,
                   const struct cmn_topology *t, const struct replica *replica,
                   const uint64_t *hash, size_t n)
{
    int usual = find_usual(replica, t->size), listed = 0, others = 0, i;
    char who[LISTED * 96] = "";
    size_t used = 0;

    for (int r = 0; r < t->size; r++) {
        if (replica[r].all == replica[usual].all) {
            continue;
        }
        if (listed == LISTED) {
            others++;
            continue;
        }
        used += (size_t)snprintf(who + used, sizeof who - used, "%s%d@%s", listed++ ? ", " : "", r,
                                 replica[r].host);
    }
    if (others) {
        snprintf(who + used, sizeof who - used, " and %d more", others);
    }
    i = find_tensor(g, hash, t->size, usual, n);
    return cmn_fail("the weights of rank%s %s differ from those of rank %d@%s, first in %s of "
                    "layer %d (%s): they were the same once, so suspect memory or a processor",
                    listed + others > 1 ? "s" : "", who, usual, replica[usual].host,
                    g->tensor[i].name, g->tensor[i].layer,
                    cmn_net_layer_name(net, g->tensor[i].layer));
}

/* Allgathers the hashes and hosts of all ranks, and records the difference as the reason. */
static int find_difference(const struct cmn_gradients *g, const struct cmn_net *net,
                           const struct cmn_topology *t, const uint64_t *mine, size_t n,
                           uint64_t all)
{
    uint64_t *hash = cmn_calloc(n * (size_t)t->size, sizeof *hash);
    struct replica *replica = cmn_calloc((size_t)t->size, sizeof *replica), here = {.all = all};
    int result;

    memcpy(here.host, t->host, sizeof here.host);
    MPI_CALL(MPI_Allgather(mine, (int)n, MPI_UINT64_T, hash, (int)n, MPI_UINT64_T, t->world));
    MPI_CALL(MPI_Allgather(&here, sizeof here, MPI_BYTE, replica, sizeof here, MPI_BYTE, t->world));
    result = say_who(g, net, t, replica, hash, n);
    free(hash);
    free(replica);
    return result;
}

int cmn_replicas_verify(const struct cmn_gradients *g, const struct cmn_net *net,
                        const struct cmn_topology *t, struct cmn_nonfinite *bad)
{
    uint64_t *hash = cmn_calloc((size_t)g->tensors, sizeof *hash), all;
    size_t n;
    int result = 0;

    bad->name = NULL;
    n = hash_weights(g, hash, bad);
    all = XXH3_64bits(hash, n * sizeof *hash);
    if (!same_everywhere(all, t)) {
        result = find_difference(g, net, t, hash, n, all);
    }
    free(hash);
    return result;
}
