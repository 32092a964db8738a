/* What all ranks together would have: lent to the network while something looks at it, and taken back, so that the training
 * goes on as if nobody had looked. */
#include "trainer/trainer.h"

#include <stdlib.h>
#include <string.h>

#include "engine/gradients_gpu.h"
#include "base/log.h"

static size_t floats_of(const struct cmn_gradients *g, enum cmn_tensor_kind kind)
{
    size_t n = 0;

    for (int i = 0; i < g->tensors; i++) {
        n += g->tensor[i].kind == kind ? g->tensor[i].n : 0;
    }
    return n;
}

/* The tensors of a kind, one behind the other. */
static int keep(const struct cmn_gradients *g, enum cmn_tensor_kind kind, float **kept)
{
    size_t at = 0;

    *kept = calloc(floats_of(g, kind) + 1, sizeof **kept);
    if (!*kept) {
        return cmn_fail("out of memory for a copy of the weights");
    }
    if (cmn_gradients_pull(g, kind)) {
        return -1;
    }
    for (int i = 0; i < g->tensors; i++) {
        const struct cmn_tensor *x = &g->tensor[i];
        if (x->kind == kind) {
            memcpy(*kept + at, *x->at, x->n * sizeof **kept);
            at += x->n;
        }
    }
    return 0;
}

static int put_back(const struct cmn_gradients *g, enum cmn_tensor_kind kind, float **kept)
{
    size_t at = 0;

    if (!*kept) {
        return 0;
    }
    for (int i = 0; i < g->tensors; i++) {
        const struct cmn_tensor *x = &g->tensor[i];
        if (x->kind == kind) {
            memcpy(*x->at, *kept + at, x->n * sizeof **kept);
            at += x->n;
        }
    }
    free(*kept);
    *kept = NULL;
    return cmn_gradients_push(g, kind);
}

/* With local steps, between two averages. */
static int average_weights(const struct cmn_gradients *g, const struct cmn_topology *top)
{
    for (int i = 0; i < g->tensors; i++) {
        const struct cmn_tensor *x = &g->tensor[i];
        for (size_t at = 0; x->kind == CMN_WEIGHT && at < x->n; at += CMN_MPI_CHUNK) {
            size_t n = x->n - at < CMN_MPI_CHUNK ? x->n - at : CMN_MPI_CHUNK;
            if (cmn_mpi_check(MPI_Allreduce(MPI_IN_PLACE, *x->at + at, (int)n, MPI_FLOAT, MPI_SUM,
                                            top->world),
                              "MPI_Allreduce")) {
                return -1;
            }
        }
        for (size_t k = 0; x->kind == CMN_WEIGHT && k < x->n; k++) {
            (*x->at)[k] /= (float)top->size;
        }
    }
    return 0;
}

int cmn_trainer_swap_in_averages(struct cmn_trainer *t)
{
    const struct cmn_topology *top = &t->session->topology;

    if (top->size == 1) {
        return 0;
    }
    if (keep(&t->gradients, CMN_STATISTIC, &t->kept_statistics) ||
        cmn_gradients_average_statistics(&t->gradients, top)) {
        return -1;
    }
    if (cmn_optimizer_synchronised(&t->optimizer)) {
        return 0;
    }
    return keep(&t->gradients, CMN_WEIGHT, &t->kept_weights) ? -1
                                                             : average_weights(&t->gradients, top);
}

int cmn_trainer_restore_own(struct cmn_trainer *t)
{
    return put_back(&t->gradients, CMN_STATISTIC, &t->kept_statistics) ||
                   put_back(&t->gradients, CMN_WEIGHT, &t->kept_weights)
               ? -1
               : 0;
}
