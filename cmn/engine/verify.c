/* Whether all ranks have the same weights, bit by bit: a hash of each tensor. */
#include "engine/gradients.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "engine/gradients_gpu.h"
#include "base/log.h"
#include "engine/net.h"
#include "engine/nonfinite.h"

enum {
    CHUNK = 16384,
    LISTED = 8
}; /* floats that stay in a cache while they are read twice; ranks that are named */

struct party {
    char host[sizeof((struct cmn_topology *)0)->host];
    uint64_t all; /* hash of the hashes */
};

static uint64_t hash_tensor(const struct cmn_tensor *t, struct cmn_nonfinite *bad)
{
    uint64_t hash = 0;

    for (size_t at = 0; at < t->n; at += CHUNK) {
        size_t n = t->n - at < CHUNK ? t->n - at : CHUNK;
        const float *x = *t->at + at, *found;
        hash = XXH3_64bits_withSeed(x, n * sizeof *x, hash);
        if ((!bad->name || t->layer < bad->layer) && (found = cmn_nonfinite_find(x, n))) {
            *bad = (struct cmn_nonfinite){t->layer, t->part, t->name, *found};
        }
    }
    return hash;
}

/* Of two equal hashes over all ranks both maxima are that of one. */
static int same_everywhere(uint64_t hash, const struct cmn_topology *t, int *same)
{
    uint64_t most[2] = {hash, ~hash};

    if (cmn_mpi_check(MPI_Allreduce(MPI_IN_PLACE, most, 2, MPI_UINT64_T, MPI_MAX, t->world),
                      "MPI_Allreduce")) {
        return -1;
    }
    *same = most[0] == ~most[1];
    return 0;
}

/* The lowest of those ranks whose weights most ranks have. */
static int find_usual(const struct party *party, int ranks)
{
    int best = 0, votes = 0;

    for (int i = 0; i < ranks; i++) {
        int n = 0;
        for (int j = 0; j < ranks; j++) {
            n += party[j].all == party[i].all;
        }
        if (n > votes) {
            best = i;
            votes = n;
        }
    }
    return best;
}

/* The first layer's first tensor in which a rank differs from `usual`, as an index of the list. */
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
                   const struct cmn_topology *t, const struct party *party, const uint64_t *hash,
                   size_t n)
{
    int usual = find_usual(party, t->size), listed = 0, others = 0, i;
    char who[LISTED * 96] = "";
    size_t used = 0;

    for (int r = 0; r < t->size; r++) {
        if (party[r].all == party[usual].all) {
            continue;
        }
        if (listed == LISTED) {
            others++;
            continue;
        }
        used += (size_t)snprintf(who + used, sizeof who - used, "%s%d@%s", listed++ ? ", " : "", r,
                                 party[r].host);
    }
    if (others) {
        snprintf(who + used, sizeof who - used, " and %d more", others);
    }
    i = find_tensor(g, hash, t->size, usual, n);
    return cmn_fail("the weights of rank%s %s differ from those of rank %d@%s, first in %s%s of "
                    "layer %d (%s): they were the same once, so suspect memory or a processor",
                    listed + others > 1 ? "s" : "", who, usual, party[usual].host,
                    g->tensor[i].part, g->tensor[i].name, g->tensor[i].layer,
                    cmn_net_layer_name(net, g->tensor[i].layer));
}

/* Each rank tells each other one all that it has found. */
static int find_difference(const struct cmn_gradients *g, const struct cmn_net *net,
                           const struct cmn_topology *t, const uint64_t *mine, size_t n,
                           uint64_t all)
{
    uint64_t *hash = calloc(n * (size_t)t->size, sizeof *hash);
    struct party *party = calloc((size_t)t->size, sizeof *party), here = {.all = all};
    int result = -1;

    memcpy(here.host, t->host, sizeof here.host);
    if (!hash || !party) {
        cmn_fail("out of memory");
    } else if (!cmn_mpi_check(
                   MPI_Allgather(mine, (int)n, MPI_UINT64_T, hash, (int)n, MPI_UINT64_T, t->world),
                   "MPI_Allgather") &&
               !cmn_mpi_check(MPI_Allgather(&here, sizeof here, MPI_BYTE, party, sizeof here,
                                            MPI_BYTE, t->world),
                              "MPI_Allgather")) {
        result = say_who(g, net, t, party, hash, n);
    }
    free(hash);
    free(party);
    return result;
}

int cmn_gradients_verify(const struct cmn_gradients *g, const struct cmn_net *net,
                         const struct cmn_topology *t, struct cmn_nonfinite *bad)
{
    uint64_t *hash = calloc((size_t)g->tensors + 1, sizeof *hash), all;
    size_t n = 0;
    int same = 0, result = -1;

    bad->name = NULL;
    if (!hash) {
        return cmn_fail("out of memory");
    }
    if (cmn_gradients_pull(g, CMN_WEIGHT)) {
        goto out;
    }
    for (int i = 0; i < g->tensors; i++) {
        if (g->tensor[i].kind == CMN_WEIGHT) {
            hash[n++] = hash_tensor(&g->tensor[i], bad);
        }
    }
    all = XXH3_64bits(hash, n * sizeof *hash);
    if (!same_everywhere(all, t, &same)) {
        result = same ? 0 : find_difference(g, net, t, hash, n, all);
    }
out:
    free(hash);
    return result;
}
