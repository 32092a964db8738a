#include "engine/plan.h"

#include <malloc.h>
#include <stdlib.h>

#include "base/memory.h"
#include "engine/darknet_net.h"
#include "engine/darknet_tree.h"
#include "engine/gpu_batch.h"
#include "engine/gradients.h"
#include "engine/net.h"

void cmn_plan_device(int device)
{
    gpu_index = device;
#ifdef GPU
    if (device >= 0) {
        cuda_set_device(device);
    }
#endif
}

/* ---- memory ---- */

/* The memory blocks that hold something for each image. Layers may share a block: dropout uses that
 * of the layer before it. */
struct blocks {
    const void **at;
    size_t n, room;
};

static void add_block(struct blocks *b, const void *at)
{
    if (!at) {
        return;
    }
    if (b->n == b->room) {
        b->room = b->room ? 2 * b->room : 256;
        b->at = cmn_realloc(b->at, b->room, sizeof *b->at);
    }
    b->at[b->n++] = at;
}

static void add_own(struct blocks *b, const layer *l)
{
    const void *own[] = {l->indexes, l->rand,  l->delta, l->output, l->loss,
                         l->squared, l->norms, l->x,     l->x_norm, l->binary_input};
    /* page-locked, so not from malloc() */
    int locked = gpu_index >= 0 && cmn_tree_layer(l).finds_boxes;

    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        if (!locked || (own[i] != l->output && own[i] != l->delta)) {
            add_block(b, own[i]);
        }
    }
}

static void add_layer(struct blocks *b, const layer *l)
{
    add_own(b, l);
    if (l->input_layer) {
        add_layer(b, l->input_layer); /* also that of a convolution with antialiasing */
    }
}

static int by_address(const void *a, const void *b)
{
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;

    return (x > y) - (x < y);
}

/* Returns the bytes that the network has allocated for the images of a micro-batch. */
static size_t batch_bytes(const network *net)
{
    struct blocks b = {0};
    size_t bytes = 0;

    add_block(&b, net->input);
    add_block(&b, net->truth);
    for (int i = 0; i < net->n; i++) {
        add_layer(&b, &net->layers[i]);
    }
    if (b.n) {
        qsort(b.at, b.n, sizeof *b.at, by_address);
    }
    for (size_t i = 0; i < b.n; i++) {
        if (i == 0 || b.at[i] != b.at[i - 1]) {
            bytes += malloc_usable_size((void *)b.at[i]);
        }
    }
    free(b.at);
    return bytes;
}

size_t cmn_plan_allocated(void)
{
    struct mallinfo2 m = mallinfo2();

    return m.uordblks + m.hblkhd;
}

static double growth(const network *net)
{
    struct cmn_tree_sizes drawn = cmn_tree_random_sizes(net);
    double pixels = (double)net->w * net->h, most = (double)drawn.most * drawn.most;

    return pixels > 0 && most > pixels ? most / pixels : 1;
}

struct cmn_plan cmn_plan_net(const struct cmn_net *which, size_t allocated)
{
    const network *net = cmn_network((struct cmn_net *)which);
    size_t now = cmn_plan_allocated(), batch = batch_bytes(net);
    /* more may have been freed since than was allocated */
    size_t bytes = now > allocated ? now - allocated : 0;
    size_t workspace = net->workspace && gpu_index < 0 ? malloc_usable_size(net->workspace) : 0;

    return (struct cmn_plan){
        .batch = net->batch,
        .subdivisions = net->subdivisions,
        .per_image = batch / (size_t)net->batch,
        .workspace = workspace,
        .weights = bytes > batch + workspace ? bytes - batch - workspace : 0,
        .sample = ((size_t)net->inputs + cmn_net_truths(which)) * sizeof(float),
        .threads = cmn_net_traits(which).loader_threads,
        .places = gpu_index >= 0 ? CMN_GPU_PLACES : 0,
        .grows = growth(net),
        .outputs = net->outputs,
    };
}

struct cmn_plan cmn_plan_cfg(const char *cfg, void (*look)(struct cmn_net *net, void *context),
                             void *context)
{
    size_t allocated = cmn_plan_allocated();
    network *net = cmn_tree_read(cfg);
    struct cmn_plan plan = cmn_plan_net(cmn_net_of(net), allocated);
    struct cmn_gradients g;

    look(cmn_net_of(net), context);
    cmn_gradients_open(&g, cmn_net_of(net), NULL);
    plan.tensors = g.exchange.tensors;
    plan.floats = cmn_gradients_floats(&g, CMN_GRADIENT);
    plan.flat = g.exchange.block.n + g.exchange.metrics.n;
    cmn_gradients_close(&g);
    cmn_tree_free(net);
    return plan;
}
