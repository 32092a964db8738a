#include "engine/graph_export.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "activations.h"
#include "cost_layer.h"

#include "base/memory.h"
#include "engine/darknet_net.h"
#include "engine/darknet_tree.h"
#include "engine/gradients.h"
#include "engine/net.h"

static void shape(char *text, size_t bytes, int w, int h, int c, int values)
{
    if (w > 0 && h > 0 && c > 0 && w * h > 1) {
        snprintf(text, bytes, "%d × %d × %d", w, h, c);
    } else {
        snprintf(text, bytes, "%d value%s", values, values == 1 ? "" : "s");
    }
}

/* Appends to the node's detail, after a comma if there is text before. */
__attribute__((format(printf, 2, 3))) static void say(struct cmn_graph_node *n, const char *format,
                                                      ...)
{
    size_t used = strlen(n->detail);
    va_list args;

    if (used) {
        snprintf(n->detail + used, sizeof n->detail - used, ", ");
        used = strlen(n->detail);
    }
    va_start(args, format);
    vsnprintf(n->detail + used, sizeof n->detail - used, format, args);
    va_end(args);
}

static void say_window(struct cmn_graph_node *n, const layer *l)
{
    say(n, "%d × %d", l->size, l->size);
    if (l->stride > 1) {
        say(n, "stride %d", l->stride);
    }
}

static void say_function(struct cmn_graph_node *n, const layer *l)
{
    if (l->batch_normalize) {
        say(n, "batch norm");
    }
    say(n, "%s", get_activation_string(l->activation));
}

static void say_sources(struct cmn_graph_node *n, const layer *l)
{
    for (int i = 0; i < l->n; i++) {
        say(n, "%s%d", i ? "" : "layer ", l->input_layers[i]);
    }
}

static void describe_filters(struct cmn_graph_node *n, const layer *l)
{
    say_window(n, l);
    say(n, "%d filter%s", l->n, l->n == 1 ? "" : "s");
    if (l->type == CONVOLUTIONAL && l->groups > 1) {
        say(n, "%d groups", l->groups);
    }
    say_function(n, l);
}

/* Describes a layer by its type, because a field that a type does not use may hold anything. */
static void describe(struct cmn_graph_node *n, const layer *l)
{
    switch (l->type) {
    case CONVOLUTIONAL:
    case DECONVOLUTIONAL:
    case LOCAL:
        describe_filters(n, l);
        break;
    case CONNECTED:
        say_function(n, l);
        break;
    case MAXPOOL:
        say_window(n, l);
        break;
    case DROPOUT:
        say(n, "probability %g", (double)l->probability);
        break;
    case ACTIVE:
        say(n, "%s", get_activation_string(l->activation));
        break;
    case REORG:
    case UPSAMPLE: /* each is the other one with `reverse` set */
        say(n, "%s%d", (l->type == UPSAMPLE) == !l->reverse ? "× " : "/ ", l->stride);
        break;
    case ROUTE:
        say_sources(n, l);
        break;
    case SHORTCUT:
        say(n, "plus layer %d", l->index);
        say(n, "%s", get_activation_string(l->activation));
        break;
    case YOLO:
    case REGION:
    case DETECTION:
        say(n, "%d box%s a place", l->n, l->n == 1 ? "" : "es");
        say(n, "%d class%s", l->classes, l->classes == 1 ? "" : "es");
        break;
    case COST:
        say(n, "%s", get_cost_string(l->cost_type));
        break;
    default:
        break;
    }
}

/* Returns the kind of a layer. A softmax without a loss is in the middle of a network. */
static enum cmn_graph_kind kind_of(const struct cmn_graph_node *n, const layer *l)
{
    if (l->type == ROUTE || l->type == SHORTCUT) {
        return CMN_GRAPH_JOIN;
    }
    if (n->parameters) {
        return CMN_GRAPH_WEIGHTS;
    }
    return l->cost && !(l->type == SOFTMAX && l->noloss) ? CMN_GRAPH_LOSS : CMN_GRAPH_OTHER;
}

static void connect(struct cmn_graph *graph, int from, int to)
{
    graph->edge[graph->edges++] = (struct cmn_graph_edge){from, to};
}

/* Adds the edges to layer i. A route does not take the layer before it, unless it names it. */
static void connect_layer(struct cmn_graph *graph, const layer *l, int i)
{
    if (l->type == ROUTE) {
        for (int j = 0; j < l->n; j++) {
            connect(graph, l->input_layers[j], i);
        }
        return;
    }
    connect(graph, i - 1, i);
    if (l->type == SHORTCUT && l->index != i - 1) {
        connect(graph, l->index, i);
    }
}

static size_t count_edges(const struct network *net)
{
    size_t edges = 0;

    for (int i = 0; i < net->n; i++) {
        const layer *l = &net->layers[i];
        edges += l->type == ROUTE ? (size_t)l->n : l->type == SHORTCUT ? 2 : 1;
    }
    return edges;
}

struct cmn_graph cmn_export_graph(const struct cmn_net *handle, const struct cmn_gradients *g,
                                  const char *name)
{
    const network *net = cmn_network(handle);
    struct cmn_graph graph = {
        .name = name,
        .nodes = net->n,
        .node = cmn_calloc((size_t)net->n, sizeof *graph.node),
        .edge = cmn_calloc(count_edges(net), sizeof *graph.edge),
    };

    shape(graph.input, sizeof graph.input, net->w, net->h, net->c, net->inputs);
    for (int i = 0; i < g->tensors; i++) {
        const struct cmn_tensor *t = &g->tensor[i];
        graph.node[t->layer].parameters += t->kind == CMN_WEIGHT ? t->n : 0;
    }
    for (int i = 0; i < net->n; i++) {
        const layer *l = &net->layers[i];
        struct cmn_graph_node *n = &graph.node[i];
        n->name = cmn_net_layer_name(handle, i);
        shape(n->output, sizeof n->output, l->out_w, l->out_h, l->out_c, l->outputs);
        describe(n, l);
        n->kind = kind_of(n, l);
        connect_layer(&graph, l, i);
    }
    return graph;
}

void cmn_graph_free(struct cmn_graph *graph)
{
    free(graph->node);
    free(graph->edge);
    *graph = (struct cmn_graph){0};
}
