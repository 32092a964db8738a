#include "engine/gradients.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "darknet.h"
#include "mpi/device.h"
#include "mpi/files.h"
#include "engine/darknet_net.h"
#include "engine/gradients_gpu.h"
#include "base/log.h"
#include "base/random.h"

/* Tensors start at multiples of this many floats: a cache line, and a whole vector register. */
enum { ALIGN = 16 };
_Static_assert(CMN_METRICS % ALIGN == 0,
               "the flat buffer's size must be a multiple of its alignment");

struct tensor_list {
    struct cmn_tensor *tensor;
    int n, room, failed;
};

/* Returns the new entry, or NULL when there is nothing to add. */
static struct cmn_tensor *add(struct tensor_list *list, enum cmn_tensor_kind kind, int layer_index,
                              const char *part, const char *name, float **at, size_t n)
{
    if (!*at || n == 0 || list->failed) {
        return NULL;
    }
    if (list->n == list->room) {
        int room = list->room ? 2 * list->room : 64;
        struct cmn_tensor *more = realloc(list->tensor, (size_t)room * sizeof *more);
        if (!more) {
            list->failed = 1;
            return NULL;
        }
        list->tensor = more;
        list->room = room;
    }
    list->tensor[list->n] = (struct cmn_tensor){
        .kind = kind, .layer = layer_index, .part = part, .name = name, .at = at, .n = n};
    return &list->tensor[list->n++];
}

/* Rows of the matrix that n weights are: one for each output. A layer in which places have weights of their own
 * is none. */
static int rows_of(const layer *l, size_t n)
{
    int rows = l->type == CONNECTED ? l->outputs : l->type == DECONVOLUTIONAL ? l->c : l->n;

    return l->type != LOCAL && rows > 1 && n > (size_t)rows && n % (size_t)rows == 0 ? rows : 0;
}

static void add_gradient(struct tensor_list *list, const layer *l, int index, const char *part,
                         const char *name, float **at, size_t n, float **weight)
{
    struct cmn_tensor *t = add(list, CMN_GRADIENT, index, part, name, at, n);

    if (t) {
        t->weight = weight;
        t->rate_scale = &l->learning_rate_scale;
        t->decays = weight == &l->weights;
        t->rows = rows_of(l, t->decays ? n : 0);
    }
}

/* One layer that holds `weights` weights and `outs` outputs with a bias each. Darknet sets
 * nweights and nbiases for some types only, so the caller knows the sizes by type. */
static void add_layer(struct tensor_list *list, layer *l, int index, const char *part,
                      size_t weights, size_t outs)
{
    add(list, CMN_WEIGHT, index, part, "weights", &l->weights, weights);
    add(list, CMN_WEIGHT, index, part, "biases", &l->biases, outs);
    add(list, CMN_WEIGHT, index, part, "scales", &l->scales, outs);
    add(list, CMN_STATISTIC, index, part, "rolling_mean", &l->rolling_mean, outs);
    add(list, CMN_STATISTIC, index, part, "rolling_variance", &l->rolling_variance, outs);
    add(list, CMN_MOMENT, index, part, "m", &l->m, weights);
    add(list, CMN_MOMENT, index, part, "v", &l->v, weights);
    add(list, CMN_MOMENT, index, part, "bias_m", &l->bias_m, outs);
    add(list, CMN_MOMENT, index, part, "bias_v", &l->bias_v, outs);
    add(list, CMN_MOMENT, index, part, "scale_m", &l->scale_m, outs);
    add(list, CMN_MOMENT, index, part, "scale_v", &l->scale_v, outs);
    add_gradient(list, l, index, part, "weight_updates", &l->weight_updates, weights, &l->weights);
    add_gradient(list, l, index, part, "bias_updates", &l->bias_updates, outs, &l->biases);
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

struct part {
    const char *name;
    layer *l;
};

static void add_parts(struct tensor_list *list, const struct part *part, int n, int index)
{
    for (int i = 0; i < n; i++) {
        if (part[i].l && part[i].l->type == CONVOLUTIONAL) {
            add_convolutional(list, part[i].l, index, part[i].name);
        } else if (part[i].l) {
            add_connected(list, part[i].l, index, part[i].name);
        }
    }
}

/* By type, never by which pointers are set: yolo and region keep anchors in `biases` and
 * `bias_updates`, and they must not be summed. */
static void add_by_type(struct tensor_list *list, layer *l, int index)
{
    size_t places = (size_t)l->out_w * (size_t)l->out_h;

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
    case CRNN: {
        struct part part[] = {{"input_layer.", l->input_layer},
                              {"self_layer.", l->self_layer},
                              {"output_layer.", l->output_layer}};
        add_parts(list, part, 3, index);
        break;
    }
    case GRU: {
        struct part part[] = {{"uz.", l->uz}, {"wz.", l->wz}, {"ur.", l->ur},
                              {"wr.", l->wr}, {"uh.", l->uh}, {"wh.", l->wh}};
        add_parts(list, part, 6, index);
        break;
    }
    case LSTM: {
        struct part part[] = {{"uf.", l->uf}, {"ui.", l->ui}, {"ug.", l->ug}, {"uo.", l->uo},
                              {"wf.", l->wf}, {"wi.", l->wi}, {"wg.", l->wg}, {"wo.", l->wo}};
        add_parts(list, part, 8, index);
        break;
    }
    default:
        break;
    }
}

size_t cmn_gradients_padded(size_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static void move(float **tensor, float *to, size_t n, int fill)
{
    if (fill) {
        memcpy(to, *tensor, n * sizeof *to);
    }
    free(*tensor);
    *tensor = to;
}

/* Zeroed memory for n floats: the communicator's, if it has some. */
static int get_arena(struct cmn_gradients *g, const struct cmn_communicator *c, void *self,
                     size_t n)
{
    g->flat_is_ours = !c || !c->memory;
    if (!g->flat_is_ours) {
        return c->memory(self, n, &g->flat);
    }
    g->flat = aligned_alloc(ALIGN * sizeof *g->flat, n * sizeof *g->flat);
    if (!g->flat) {
        return cmn_fail("gradients: out of memory for %zu floats", n);
    }
    memset(g->flat, 0, n * sizeof *g->flat);
    return 0;
}

/* Moves the gradients into one block, in the order in which backward finishes them. */
static int build_arena(struct cmn_gradients *g, const struct cmn_communicator *c, void *self)
{
    size_t total = CMN_METRICS, at = 0;
    int spans = 0, steps = c && c->step, first = 0;
    float *weights = NULL;

    for (int i = 0; i < g->tensors; i++) {
        total += g->tensor[i].kind == CMN_GRADIENT ? cmn_gradients_padded(g->tensor[i].n) : 0;
    }
    g->span = calloc((size_t)g->tensors + 1, sizeof *g->span); /* never of 0 bytes */
    g->rate = calloc((size_t)g->tensors + 1, sizeof *g->rate);
    g->decay = calloc((size_t)g->tensors + 1, sizeof *g->decay);
    if (!g->span || !g->rate || !g->decay) {
        return cmn_fail("gradients: out of memory");
    }
    if (get_arena(g, c, self, total) || (steps && c->common(self, total, &weights, &first))) {
        return -1;
    }
    for (int i = 0; i < g->tensors; i++) {
        const struct cmn_tensor *t = &g->tensor[i];
        if (t->kind != CMN_GRADIENT) {
            continue;
        }
        move(t->at, g->flat + at, t->n, 1);
        if (steps) {
            move(t->weight, weights + at, t->n, first);
        }
        g->span[spans++] = (struct cmn_span){g->flat + at, t->n, t->rows};
        at += cmn_gradients_padded(t->n);
    }
    g->metrics = g->flat + at;
    g->exchange = (struct cmn_exchange){
        .tensor = g->span,
        .tensors = spans,
        .block = {.data = g->flat, .n = at},
        .metrics = {.data = g->metrics, .n = CMN_METRICS},
        .weights = weights,
    };
    return 0;
}

int cmn_gradients_open(struct cmn_gradients *g, struct cmn_net *net,
                       const struct cmn_communicator *c, void *self)
{
    struct tensor_list list = {0};

    memset(g, 0, sizeof *g);
    for (int i = cmn_network(net)->n - 1; i >= 0; i--) {
        add_by_type(&list, &cmn_network(net)->layers[i], i);
    }
    g->tensor = list.tensor;
    g->tensors = list.n;
    if (list.failed) {
        return cmn_fail("gradients: out of memory for the list of tensors");
    }
    return cmn_net_on_gpu(net) ? cmn_gradients_gpu_open(g) : build_arena(g, c, self);
}

void cmn_gradients_close(struct cmn_gradients *g)
{
    if (g->on_gpu) {
        cmn_gradients_gpu_close(g);
    }
    for (int i = 0; i < g->tensors && g->flat && !g->on_gpu; i++) {
        if (g->tensor[i].kind != CMN_GRADIENT) {
            continue;
        }
        *g->tensor[i].at = NULL;
        if (g->exchange.weights) {
            *g->tensor[i].weight = NULL;
        }
    }
    if (g->flat_is_ours) {
        free(g->flat);
    }
    free(g->tensor);
    free(g->span);
    free(g->rate);
    free(g->decay);
    memset(g, 0, sizeof *g);
}

int cmn_gradients_sum(struct cmn_gradients *g, const struct cmn_communicator *c, void *self)
{
    return g->on_gpu ? cmn_gradients_gpu_sum(g, c, self) : c->allreduce(self, &g->exchange);
}

void cmn_gradients_rates(struct cmn_gradients *g, int images, float rate, float decay)
{
    int spans = 0;

    for (int i = 0; i < g->tensors; i++) {
        const struct cmn_tensor *t = &g->tensor[i];
        if (t->kind == CMN_GRADIENT) {
            g->rate[spans] = rate * *t->rate_scale / (float)images;
            g->decay[spans] = t->decays ? -decay * (float)images : 0;
            spans++;
        }
    }
}

int cmn_gradients_step(struct cmn_gradients *g, const struct cmn_communicator *c, void *self,
                       int images, float rate, float momentum, float decay)
{
    struct cmn_sgd sgd = {momentum, g->rate, g->decay};

    cmn_gradients_rates(g, images, rate, decay);
    return c->step(self, &g->exchange, &sgd);
}
