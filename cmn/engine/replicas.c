/* What all ranks must have alike: comparing it, sending it, averaging it. */
#include "engine/gradients.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "darknet.h"

#include "mpi/files.h"
#include "engine/darknet_net.h"
#include "engine/gradients_gpu.h"
#include "engine/net.h"
#include "base/log.h"
#include "engine/batch_norm.h"

/* Tensors first: of several differences the one that says most is named. */
static char *describe(const struct cmn_gradients *g, const struct cmn_net *net, const char *options)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);

    if (!out) {
        return NULL;
    }
    fprintf(out, "%d layers\n", cmn_net_layers(net));
    for (int i = 0; i < g->tensors; i++) {
        const struct cmn_tensor *t = &g->tensor[i];
        fprintf(out, "layer %d %s%s = %zu floats\n", t->layer, t->part, t->name, t->n);
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

char *cmn_gradients_describe(const struct cmn_gradients *g, const struct cmn_net *net)
{
    char *text = describe(g, net, "");

    if (!text) {
        cmn_fail("out of memory");
    }
    return text;
}

int cmn_gradients_compare(const struct cmn_gradients *g, struct cmn_net *net, const char *options,
                          const struct cmn_topology *t)
{
    char *here = describe(g, net, options);

    if (!here) {
        return cmn_fail("out of memory");
    }
    cmn_files_compare("network", here, t);
    free(here);
    return 0;
}

static int pull_all(const struct cmn_gradients *g)
{
    return cmn_gradients_pull(g, CMN_GRADIENT) || cmn_gradients_pull(g, CMN_WEIGHT) ||
                   cmn_gradients_pull(g, CMN_STATISTIC) || cmn_gradients_pull(g, CMN_MOMENT)
               ? -1
               : 0;
}

static int push_all(const struct cmn_gradients *g)
{
    return cmn_gradients_push(g, CMN_GRADIENT) || cmn_gradients_push(g, CMN_WEIGHT) ||
                   cmn_gradients_push(g, CMN_STATISTIC) || cmn_gradients_push(g, CMN_MOMENT)
               ? -1
               : 0;
}

int cmn_gradients_broadcast(const struct cmn_gradients *g, struct cmn_net *net,
                            const struct cmn_topology *t)
{
    unsigned long seen = cmn_net_seen(net);
    int updates = cmn_net_updates(net);

    if (cmn_mpi_check(MPI_Bcast(&seen, 1, MPI_UNSIGNED_LONG, 0, t->world), "MPI_Bcast") ||
        cmn_mpi_check(MPI_Bcast(&updates, 1, MPI_INT, 0, t->world), "MPI_Bcast")) {
        return cmn_fail_in("broadcast of seen");
    }
    cmn_net_set_seen(net, seen);
    cmn_net_set_updates(net, updates);
    if (pull_all(g)) {
        return -1;
    }
    for (int i = 0; i < g->tensors; i++) {
        const struct cmn_tensor *tensor = &g->tensor[i];
        cmn_mpi_bcast(*tensor->at, tensor->n, MPI_FLOAT, t->world);
    }
    return push_all(g);
}

/* mean and variance of one layer. Where all ranks have the same, no bit changes. */
static int merge_statistics(const struct cmn_tensor *mean, const struct cmn_tensor *variance,
                            double share, const struct cmn_topology *t)
{
    size_t n = mean->n, doubles = cmn_batch_norm_doubles(n), ranks = (size_t)t->size;
    double *all = calloc((ranks + 2) * doubles, sizeof *all);
    const double **part = calloc(ranks, sizeof *part);
    double *mine, *sum;
    int result = -1;

    if (!all || !part) {
        cmn_fail("out of memory");
        goto out;
    }
    mine = all + ranks * doubles;
    sum = mine + doubles;
    mine[0] = share;
    for (size_t i = 0; i < n; i++) {
        mine[1 + i] = (double)(*mean->at)[i];
        mine[1 + n + i] = share * (double)(*variance->at)[i];
    }
    if (cmn_mpi_check(
            MPI_Allgather(mine, (int)doubles, MPI_DOUBLE, all, (int)doubles, MPI_DOUBLE, t->world),
            "MPI_Allgather")) {
        goto out;
    }
    for (size_t k = 0; k < ranks; k++) {
        part[k] = all + k * doubles;
    }
    cmn_batch_norm_merge(sum, part, t->size, n);
    for (size_t i = 0; i < n; i++) {
        (*mean->at)[i] = (float)sum[1 + i];
        (*variance->at)[i] = (float)(sum[1 + n + i] / sum[0]);
    }
    result = 0;
out:
    free(part);
    free(all);
    return result;
}

int cmn_gradients_average_statistics(const struct cmn_gradients *g, const struct cmn_topology *t)
{
    double share = g->share > 0 ? g->share : 1;

    if (t->size == 1) {
        return 0;
    }
    if (cmn_gradients_pull(g, CMN_STATISTIC)) {
        return -1;
    }
    for (int i = 0; i < g->tensors; i++) {
        const struct cmn_tensor *mean = &g->tensor[i];
        /* The variance follows the mean in the list (gradients.c). */
        if (mean->kind != CMN_STATISTIC || strcmp(mean->name, "rolling_mean")) {
            continue;
        }
        if (merge_statistics(mean, mean + 1, share, t)) {
            return cmn_fail_in("statistics of layer %d %s", mean->layer, mean->part);
        }
    }
    return cmn_gradients_push(g, CMN_STATISTIC);
}
