/* Lists the tensors of Darknet's layers, and copies all tensors of a kind. */
#include "engine/gradients.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/memory.h"
#include "engine/darknet_net.h"
#include "engine/darknet_tree.h"
#include "mpi/device.h"

/* ---- the list ---- */

/* A field of struct layer that points to a tensor: its name, and the offsets of the pointers to the
 * tensor and to the GPU's copy. */
struct field {
    const char *name;
    size_t host, device;
};
#ifdef GPU
#define FIELD(name)                                               \
    {                                                             \
#name, offsetof(layer, name), offsetof(layer, name##_gpu) \
    }
#else
#define FIELD(name)                     \
    {                                   \
#name, offsetof(layer, name), 0 \
    }
#endif

/* A layer trains these tensors. */
enum { WEIGHTS, BIASES, SCALES, TRAINED };
static const struct {
    struct field weight, gradient, m, v; /* m and v: Adam's moments */
    const char *average;                 /* the name of Darknet's own average */
} trained[TRAINED] = {
    {FIELD(weights), FIELD(weight_updates), FIELD(m), FIELD(v), "weights_ema"},
    {FIELD(biases), FIELD(bias_updates), FIELD(bias_m), FIELD(bias_v), "biases_ema"},
    {FIELD(scales), FIELD(scale_updates), FIELD(scale_m), FIELD(scale_v), "scales_ema"},
};
static const struct field rolling[] = {FIELD(rolling_mean), FIELD(rolling_variance)};

struct tensor_list {
    struct cmn_tensor *tensor;
    int n, room, on_gpu;
    int averages; /* 1: Darknet itself keeps averages of the weights */
    const network *net;
    /* The layer that is being listed, its index in the network, and its name as a sub-layer. */
    layer *l;
    int index;
    int updates; /* 1: Darknet updates the layer with this index */
};

static float **pointer(layer *l, size_t offset)
{
    return (float **)((char *)l + offset);
}

/* Returns the pointer to the GPU's copy, or NULL if there is none: Darknet keeps some tensors, e.g.
 * the scales of binary weights, only on the host. */
static float **device_of(layer *l, const struct field *f)
{
    return *pointer(l, f->device) ? pointer(l, f->device) : NULL;
}

/* Appends a tensor. Returns the new entry, or NULL if there is nothing to add. */
static struct cmn_tensor *append(struct tensor_list *list, enum cmn_tensor_kind kind,
                                 const char *name, float **at, size_t n)
{
    struct cmn_tensor *t;

    if (!*at || n == 0) {
        return NULL;
    }
    if (list->n == list->room) {
        list->room = list->room ? 2 * list->room : 64;
        list->tensor = cmn_realloc(list->tensor, (size_t)list->room, sizeof *list->tensor);
    }
    t = &list->tensor[list->n++];
    *t = (struct cmn_tensor){.kind = kind, .layer = list->index, .name = name, .at = at, .n = n};
    return t;
}

/* Does the same for a field of the layer. The flat buffer allocates moments for layers that have
 * none on the GPU. */
static struct cmn_tensor *add(struct tensor_list *list, enum cmn_tensor_kind kind,
                              const struct field *f, size_t n)
{
    struct cmn_tensor *t = append(list, kind, f->name, pointer(list->l, f->host), n);

    if (t && list->on_gpu) {
        t->device = kind == CMN_MOMENT ? pointer(list->l, f->device) : device_of(list->l, f);
    }
    return t;
}

/* Returns the rows of the matrix that n weights form, one for each output; 0 if they form none.
 * [local] has weights of its own for each place, and no matrix. */
static int rows_of(const layer *l, size_t n)
{
    int rows = l->type == CONNECTED ? l->outputs : l->type == DECONVOLUTIONAL ? l->c : l->n;

    return l->type != LOCAL && l->type != SHORTCUT && rows > 1 && n > (size_t)rows &&
                   n % (size_t)rows == 0
               ? rows
               : 0;
}

/* Finds the GPU's copies of the weights of gradient t and of their moments, and Darknet's limit for
 * the weights of convolutions. Ends the job if the gradient or its weights are not on the GPU. */
static void find_on_gpu(struct cmn_tensor *t, layer *l, int which)
{
    const struct field *m = &trained[which].m, *v = &trained[which].v;

    t->device_weight = device_of(l, &trained[which].weight);
    t->limit = l->type == CONVOLUTIONAL && t->decays ? &l->clip : NULL;
    if (*pointer(l, m->host) && *pointer(l, v->host)) {
        t->device_m = pointer(l, m->device);
        t->device_v = pointer(l, v->device);
    }
    if (!t->device || !t->device_weight) {
        cmn_fatal("gradients: layer %d %s is not on the GPU", t->layer,
                  t->device ? trained[which].weight.name : t->name);
    }
}

static void add_gradient(struct tensor_list *list, int which, size_t n)
{
    struct cmn_tensor *t =
        list->updates ? add(list, CMN_GRADIENT, &trained[which].gradient, n) : NULL;

    if (t) {
        t->weight = pointer(list->l, trained[which].weight.host);
        t->rate_scale = cmn_tree_layer(list->l).rate;
        t->decays = which == WEIGHTS;
        t->rows = rows_of(list->l, t->decays ? n : 0);
        if (list->on_gpu) {
            find_on_gpu(t, list->l, which);
        }
    }
}

static void add_statistic(struct tensor_list *list, const struct field *f, size_t n)
{
    const struct cmn_tree_layer is = cmn_tree_layer(list->l);
    struct cmn_tensor *t = add(list, is.frozen ? CMN_WEIGHT : CMN_STATISTIC, f, n);

    if (t) {
        t->keeps = is.keeps;
    }
}

/* Adds one layer with `weights` weights, and `outs` outputs with a bias each. Darknet sets nweights
 * and nbiases only for some types, so the caller computes the sizes by type. */
static void add_layer(struct tensor_list *list, layer *l, size_t weights, size_t outs)
{
    const struct cmn_tree_layer is = cmn_tree_layer(l);
    const size_t n[TRAINED] = {weights, is.leaves_biases ? 0 : outs, outs};

    list->l = l;
    for (int i = 0; i < TRAINED; i++) {
        add(list, CMN_WEIGHT, &trained[i].weight, n[i]);
    }
    for (int i = 0; i < TRAINED && list->averages; i++) {
        append(list, CMN_EMA, trained[i].average, is.averages[i], n[i]);
    }
    add_statistic(list, &rolling[0], outs);
    add_statistic(list, &rolling[1], outs);
    for (int i = 0; i < TRAINED; i++) {
        add(list, CMN_MOMENT, &trained[i].m, n[i]);
        add(list, CMN_MOMENT, &trained[i].v, n[i]);
    }
    for (int i = 0; i < TRAINED; i++) {
        add_gradient(list, i, n[i]);
    }
}

/* Adds a layer's tensors by its type, not by which pointers are set: yolo and region keep anchors
 * in `biases` and `bias_updates`, and these must not be summed. */
static void add_by_type(struct tensor_list *list, layer *l)
{
    size_t places = (size_t)l->out_w * (size_t)l->out_h;

    switch (l->type) {
    case CONVOLUTIONAL:
    case DECONVOLUTIONAL:
        add_layer(list, l, (size_t)l->nweights, (size_t)l->n);
        break;
    case CONNECTED:
        add_layer(list, l, (size_t)l->inputs * (size_t)l->outputs, (size_t)l->outputs);
        break;
    case LOCAL:
        add_layer(list, l, (size_t)l->size * (size_t)l->size * (size_t)l->c * (size_t)l->n * places,
                  (size_t)l->outputs);
        break;
    case BATCHNORM:
        add_layer(list, l, 0, (size_t)l->c);
        break;
    default:
        add_layer(list, l, cmn_tree_layer(l).weights, 0);
        break;
    }
}

void cmn_gradients_list(struct cmn_gradients *g, struct cmn_net *net)
{
    const network *n = cmn_network(net);
    struct tensor_list list = {
        .net = n, .on_gpu = cmn_net_on_gpu(net), .averages = cmn_net_traits(net).averages};
    const char *name;
    float **followed;
    /* [net] of the cfg was checked when it was read; this checks the layers. */
    const char *why = cmn_tree_refusal(&(network){.n = n->n, .layers = n->layers}, NULL);

    if (why) {
        cmn_fatal("%s", why);
    }
    for (int i = n->n - 1; i >= 0; i--) {
        list.index = i;
        list.updates = cmn_tree_layer(&n->layers[i]).updates;
        add_by_type(&list, &n->layers[i]);
    }
    for (int i = 0; (followed = cmn_tree_followed(cmn_network(net), i, &name)); i++) {
        append(&list, CMN_FOLLOWED, name, followed, 1);
    }
    g->tensor = list.tensor;
    g->tensors = list.n;
    g->on_gpu = list.on_gpu;
    g->adam = (struct cmn_adam){n->B1, n->B2, n->eps, n->t};
}

/* ---- copies ---- */

/* Returns whether the tensor is inside the block of the host's weights, which is copied as a
 * whole. */
static int in_block(const struct cmn_gradients *g, const struct cmn_tensor *t)
{
    uintptr_t at = (uintptr_t)*t->at, begin = (uintptr_t)g->host_weights;

    return g->host_weights && at >= begin && at < begin + g->exchange.block.n * sizeof(float);
}

static void transfer(const struct cmn_gradients *g, enum cmn_tensor_kind kind, int to_host)
{
    if (kind == CMN_WEIGHT && g->host_weights) {
        (to_host ? g->ops->read : g->ops->write)(to_host ? g->host_weights : g->exchange.weights,
                                                 to_host ? g->exchange.weights : g->host_weights,
                                                 g->exchange.block.n);
    }
    for (int i = 0; i < g->tensors; i++) {
        const struct cmn_tensor *t = &g->tensor[i];
        if (t->kind != kind || !t->device || !*t->device || in_block(g, t)) {
            continue;
        }
        if (to_host) {
            cmn_device_read(*t->at, *t->device, t->n);
        } else {
            cmn_device_write(*t->device, *t->at, t->n);
        }
    }
}

void cmn_gradients_pull(const struct cmn_gradients *g, enum cmn_tensor_kind kind)
{
    transfer(g, kind, 1);
}

void cmn_gradients_push(const struct cmn_gradients *g, enum cmn_tensor_kind kind)
{
    transfer(g, kind, 0);
}

size_t cmn_gradients_floats(const struct cmn_gradients *g, enum cmn_tensor_kind kind)
{
    size_t n = 0;

    for (int i = 0; i < g->tensors; i++) {
        n += g->tensor[i].kind == kind ? g->tensor[i].n : 0;
    }
    return n;
}

static float rolling_factor(const struct cmn_rolling_factor *f, double keeps)
{
    int terms = abs(f->terms);
    double sum = terms > 1 ? (1 - pow(keeps, terms)) / (1 - keeps) : 1;

    return (float)(f->scale * pow(keeps, f->power) * (f->terms < 0 ? 1 / sum : sum));
}

void cmn_gradients_scale_statistics(const struct cmn_gradients *g,
                                    const struct cmn_rolling_factor *by)
{
    for (int i = 0; i < g->tensors && by; i++) {
        const struct cmn_tensor *t = &g->tensor[i];
        float factor = t->kind == CMN_STATISTIC ? rolling_factor(by, t->keeps) : 1;
        if (factor == 1) {
            continue;
        }
        if (t->device && *t->device) {
            g->ops->scale(*t->device, factor, t->n);
            continue;
        }
        for (size_t k = 0; k < t->n; k++) {
            (*t->at)[k] *= factor;
        }
    }
}

void cmn_gradients_scale_layer(const struct cmn_gradients *g, int layer, float factor)
{
    for (int i = 0; i < g->tensors; i++) {
        const struct cmn_tensor *t = &g->tensor[i];
        if (t->kind == CMN_GRADIENT && t->layer == layer && t->device) {
            g->ops->scale(*t->device, factor, t->n);
        }
    }
}

void cmn_gradients_pack(const struct cmn_gradients *g, enum cmn_tensor_kind kind, float *to)
{
    cmn_gradients_pull(g, kind);
    for (int i = 0; i < g->tensors; i++) {
        const struct cmn_tensor *t = &g->tensor[i];
        if (t->kind == kind) {
            memcpy(to, *t->at, t->n * sizeof *to);
            to += t->n;
        }
    }
}

void cmn_gradients_unpack(const struct cmn_gradients *g, enum cmn_tensor_kind kind,
                          const float *from)
{
    for (int i = 0; i < g->tensors; i++) {
        const struct cmn_tensor *t = &g->tensor[i];
        if (t->kind == kind) {
            memcpy(*t->at, from, t->n * sizeof *from);
            from += t->n;
        }
    }
    cmn_gradients_push(g, kind);
}
