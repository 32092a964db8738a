/* The flat gradient buffer in the GPU's memory. The metrics stay on the host and are copied
 * around the exchange. */
#include "engine/gradients.h"

#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "mpi/device.h"

static void require(int result)
{
    if (result) {
        cmn_fail_in("gradients");
        cmn_fatal_reason();
    }
}

static void open_gpu(struct cmn_gradients *g, size_t floats, const struct cmn_communicator *c,
                     void *self)
{
    (void)c;
    (void)self;
    require(cmn_device_memory(&g->flat, floats));
    require(cmn_device_memory(&g->bad_on_gpu, (size_t)g->tensors + 1));
    g->metrics = cmn_calloc(CMN_METRICS, sizeof *g->metrics);
    g->bad = cmn_calloc((size_t)g->tensors, sizeof *g->bad);
}

static void move_gpu(struct cmn_gradients *g, const struct cmn_tensor *t, size_t at)
{
    require(cmn_device_copy(g->flat + at, *t->device, t->n));
    cmn_device_free(*t->device);
    *t->device = g->flat + at;
}

static void sum_gpu(struct cmn_gradients *g, const struct cmn_communicator *c, void *self)
{
    float *on_device = g->exchange.metrics.data;

    if (c->poll) {
        require(cmn_device_wait(c->poll, self));
    }
    require(cmn_device_write(on_device, g->metrics, CMN_METRICS));
    c->allreduce(self, &g->exchange);
    require(cmn_device_read(g->metrics, on_device, CMN_METRICS));
}

static void close_gpu(struct cmn_gradients *g)
{
    for (int i = 0; i < g->tensors; i++) {
        if (g->tensor[i].kind == CMN_GRADIENT) {
            *g->tensor[i].device = NULL;
        }
    }
    cmn_device_free(g->flat);
    cmn_device_free(g->bad_on_gpu);
    free(g->bad);
    free(g->metrics);
}

const struct cmn_flat_buffer_ops cmn_flat_buffer_gpu = {open_gpu, move_gpu, sum_gpu, close_gpu};

void cmn_gradients_gpu_check(struct cmn_gradients *g, int i)
{
    require(cmn_device_find_nonfinite(g->bad_on_gpu + i, *g->tensor[i].device, g->tensor[i].n));
}

int cmn_gradients_gpu_checked(struct cmn_gradients *g)
{
    size_t n = (size_t)g->tensors;

    require(cmn_device_read(g->bad, g->bad_on_gpu, n));
    for (int i = 0; i < g->tensors; i++) {
        if (g->bad[i] != 0) {
            memset(g->bad, 0, n * sizeof *g->bad);
            require(cmn_device_write(g->bad_on_gpu, g->bad, n));
            return i;
        }
    }
    return -1;
}
