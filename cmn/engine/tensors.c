/* Lists the tensors of Darknet's layers, and copies all tensors of a kind. */
#include "engine/gradients.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/log.h"
#include "base/memory.h"
#include "engine/darknet_net.h"
#include "engine/darknet_tree.h"
#include "mpi/device.h"

/* ---- the list ---- */

struct tensor_list {
    struct cmn_tensor *tensor;
    int n, room, on_gpu;
    const network *net;
    int updates; /* 1: Darknet updates the layer that is being listed */
};

#ifdef GPU
/* Offsets in struct layer of the host's and the GPU's pointer to the same tensor. */
static const struct {
    const char *name;
    size_t host, device;
} fields[] = {
#define FIELD(name)                                               \
    {                                                             \
#name, offsetof(layer, name), offsetof(layer, name##_gpu) \
    }
    FIELD(weights),
    FIELD(biases),
    FIELD(scales),
    FIELD(weight_updates),
    FIELD(bias_updates),
    FIELD(scale_updates),
    FIELD(rolling_mean),
    FIELD(rolling_variance),
    FIELD(m),
    FIELD(v),
    FIELD(bias_m),
    FIELD(bias_v),
    FIELD(scale_m),
    FIELD(scale_v),
#undef FIELD
};
#endif

/* Returns the GPU's counterpart of the pointer `at`, which is the field of that name; NULL if there
 * is none. */
static float **field_of(const char *name, float **at)
{
    float **device = NULL;

#ifdef GPU
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (!strcmp(fields[i].name, name)) {
            device = (float **)((char *)at - fields[i].host + fields[i].device);
        }
    }
#else
    (void)name;
    (void)at;
#endif
    return device;
}

/* Does the same as field_of(), but returns NULL if the GPU's pointer is NULL: Darknet keeps some
 * tensors, e.g. the scales of binary weights, only on the host. */
static float **device_of(const char *name, float **at)
{
    float **device = field_of(name, at);

    return device && *device ? device : NULL;
}

/* Appends a tensor. Returns the new entry, or NULL if there is nothing to add. */
static struct cmn_tensor *add(struct tensor_list *list, enum cmn_tensor_kind kind, int layer_index,
                              const char *part, const char *name, float **at, size_t n)
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
    *t = (struct cmn_tensor){
        .kind = kind, .layer = layer_index, .part = part, .name = name, .at = at, .n = n};
    if (list->on_gpu) {
        /* The flat buffer allocates moments for layers that have none on the GPU. */
        t->device = kind == CMN_MOMENT ? field_of(name, at) : device_of(name, at);
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
static void find_on_gpu(struct cmn_tensor *t, layer *l)
{
    const struct {
        float **weight, **m, **v;
        const char *m_name, *v_name;
    } moments[] = {
        {&l->weights, &l->m, &l->v, "m", "v"},
        {&l->biases, &l->bias_m, &l->bias_v, "bias_m", "bias_v"},
        {&l->scales, &l->scale_m, &l->scale_v, "scale_m", "scale_v"},
    };
    const char *name = t->weight == (float **)&l->weights  ? "weights"
                       : t->weight == (float **)&l->biases ? "biases"
                                                           : "scales";

    t->device_weight = device_of(name, t->weight);
    t->limit = l->type == CONVOLUTIONAL && t->decays ? &l->clip : NULL;
    for (size_t i = 0; i < sizeof moments / sizeof moments[0]; i++) {
        if (t->weight == moments[i].weight && *moments[i].m && *moments[i].v) {
            t->device_m = field_of(moments[i].m_name, moments[i].m);
            t->device_v = field_of(moments[i].v_name, moments[i].v);
        }
    }
    if (!t->device || !t->device_weight) {
        cmn_fatal("gradients: layer %d %s%s is not on the GPU", t->layer, t->part,
                  t->device ? name : t->name);
    }
}

static void add_gradient(struct tensor_list *list, layer *l, int index, const char *part,
                         const char *name, float **at, size_t n, float **weight)
{
    struct cmn_tensor *t = list->updates ? add(list, CMN_GRADIENT, index, part, name, at, n) : NULL;

    if (t) {
        t->weight = weight;
        t->rate_scale = cmn_tree_rate_scale(l);
        t->decays = weight == &l->weights;
        t->rows = rows_of(l, t->decays ? n : 0);
        if (list->on_gpu) {
            find_on_gpu(t, l);
        }
    }
}

static void add_statistic(struct tensor_list *list, const layer *l, int index, const char *part,
                          const char *name, float **at, size_t n)
{
    enum cmn_tensor_kind kind = cmn_tree_keeps_statistics(l) ? CMN_WEIGHT : CMN_STATISTIC;
    struct cmn_tensor *t = add(list, kind, index, part, name, at, n);
    double keeps = cmn_tree_rolling_keeps(l);

    /* The sub-layers of a recurrent layer update their statistics in each step of a sequence. */
    if (t) {
        t->keeps = keeps;
        for (int i = 1; part[0] && i < list->net->layers[index].steps; i++) {
            t->keeps *= keeps;
        }
    }
}

/* Adds one layer with `weights` weights, and `outs` outputs with a bias each. Darknet sets nweights
 * and nbiases only for some types, so the caller computes the sizes by type. */
static void add_layer(struct tensor_list *list, layer *l, int index, const char *part,
                      size_t weights, size_t outs)
{
    size_t biases = cmn_tree_saves_biases(l) ? outs : 0;
    float **average[3];

    add(list, CMN_WEIGHT, index, part, "weights", &l->weights, weights);
    add(list, CMN_WEIGHT, index, part, "biases", &l->biases, biases);
    add(list, CMN_WEIGHT, index, part, "scales", &l->scales, outs);
    if (cmn_tree_averages(list->net, l, average)) {
        add(list, CMN_EMA, index, part, "weights_ema", average[0], weights);
        add(list, CMN_EMA, index, part, "biases_ema", average[1], biases);
        add(list, CMN_EMA, index, part, "scales_ema", average[2], outs);
    }
    add_statistic(list, l, index, part, "rolling_mean", &l->rolling_mean, outs);
    add_statistic(list, l, index, part, "rolling_variance", &l->rolling_variance, outs);
    add(list, CMN_MOMENT, index, part, "m", &l->m, weights);
    add(list, CMN_MOMENT, index, part, "v", &l->v, weights);
    add(list, CMN_MOMENT, index, part, "bias_m", &l->bias_m, biases);
    add(list, CMN_MOMENT, index, part, "bias_v", &l->bias_v, biases);
    add(list, CMN_MOMENT, index, part, "scale_m", &l->scale_m, outs);
    add(list, CMN_MOMENT, index, part, "scale_v", &l->scale_v, outs);
    add_gradient(list, l, index, part, "weight_updates", &l->weight_updates, weights, &l->weights);
    add_gradient(list, l, index, part, "bias_updates", &l->bias_updates, biases, &l->biases);
    add_gradient(list, l, index, part, "scale_updates", &l->scale_updates, outs, &l->scales);
}

static void add_connected(struct tensor_list *list, layer *l, int index, const char *part)
{
    add_layer(list, l, index, part, (size_t)l->inputs * (size_t)l->outputs, (size_t)l->outputs);
}

static void add_convolutional(struct tensor_list *list, layer *l, int index, const char *part)
{
    add_layer(list, l, index, part, (size_t)l->nweights, (size_t)l->n);
}

static void add_parts(struct tensor_list *list, const struct cmn_tree_part *part, int n, int index)
{
    for (int i = 0; i < n; i++) {
        if (part[i].l && part[i].l->type == CONVOLUTIONAL) {
            add_convolutional(list, part[i].l, index, part[i].name);
        } else if (part[i].l) {
            add_connected(list, part[i].l, index, part[i].name);
        }
    }
}

/* Adds a layer's tensors by its type, not by which pointers are set: yolo and region keep anchors
 * in `biases` and `bias_updates`, and these must not be summed. */
static void add_by_type(struct tensor_list *list, layer *l, int index)
{
    size_t places = (size_t)l->out_w * (size_t)l->out_h;
    struct cmn_tree_part part[CMN_TREE_PARTS];

    switch (l->type) {
    case CONVOLUTIONAL:
    case DECONVOLUTIONAL:
        add_convolutional(list, l, index, "");
        break;
    case CONNECTED:
        add_connected(list, l, index, "");
        break;
    case LOCAL:
        add_layer(list, l, index, "",
                  (size_t)l->size * (size_t)l->size * (size_t)l->c * (size_t)l->n * places,
                  (size_t)l->outputs);
        break;
    case BATCHNORM:
        add_layer(list, l, index, "", 0, (size_t)l->c);
        break;
    case RNN:
    case CRNN:
        part[0] = (struct cmn_tree_part){"input_layer.", l->input_layer};
        part[1] = (struct cmn_tree_part){"self_layer.", l->self_layer};
        part[2] = (struct cmn_tree_part){"output_layer.", l->output_layer};
        add_parts(list, part, 3, index);
        break;
    default:
        add_parts(list, part, cmn_tree_parts(l, part), index);
        add_layer(list, l, index, "", cmn_tree_plain_weights(l), 0);
        break;
    }
}

void cmn_gradients_list(struct cmn_gradients *g, struct cmn_net *net)
{
    const network *n = cmn_network(net);
    struct tensor_list list = {.net = n, .on_gpu = cmn_net_on_gpu(net)};
    const char *name;
    float **followed;
    /* [net] of the cfg was checked when it was read; this checks the layers. */
    const char *why = cmn_tree_refusal(&(network){.n = n->n, .layers = n->layers}, NULL);

    if (why) {
        cmn_fatal("%s", why);
    }
    for (int i = n->n - 1; i >= 0; i--) {
        list.updates = cmn_tree_updates(&n->layers[i]);
        add_by_type(&list, &n->layers[i], i);
    }
    for (int i = 0; (followed = cmn_tree_followed(cmn_network(net), i, &name)); i++) {
        add(&list, CMN_FOLLOWED, 0, "", name, followed, 1);
    }
    g->tensor = list.tensor;
    g->tensors = list.n;
    g->on_gpu = list.on_gpu;
    g->adam = (struct cmn_adam){n->B1, n->B2, n->eps, n->t};
}

double cmn_gradients_variance_less(void)
{
    return cmn_tree_variance_less();
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
        if (t->kind == kind && t->device && *t->device && !in_block(g, t) &&
            (to_host ? cmn_device_read(*t->at, *t->device, t->n)
                     : cmn_device_write(*t->device, *t->at, t->n))) {
            cmn_fail_in("layer %d %s%s", t->layer, t->part, t->name);
            cmn_fatal_reason();
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
#ifdef GPU
        if (t->device && *t->device) {
            cmn_tree_scale_on_gpu(*t->device, t->n, factor);
            continue;
        }
#endif
        for (size_t k = 0; k < t->n; k++) {
            (*t->at)[k] *= factor;
        }
    }
}

void cmn_gradients_scale_layer(const struct cmn_gradients *g, int layer, float factor)
{
#ifdef GPU
    for (int i = 0; i < g->tensors; i++) {
        const struct cmn_tensor *t = &g->tensor[i];
        if (t->kind == CMN_GRADIENT && t->layer == layer && t->device) {
            cmn_tree_scale_on_gpu(*t->device, t->n, factor);
        }
    }
#else
    (void)g;
    (void)layer;
    (void)factor;
#endif
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
