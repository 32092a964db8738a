/* Graph export: a network's layers as nodes, and which layer is an input of which. Plain data. */
#ifndef CMN_GRAPH_EXPORT_H
#define CMN_GRAPH_EXPORT_H

#include <stddef.h>

struct cmn_gradients;
struct cmn_net;

enum cmn_graph_kind {
    CMN_GRAPH_WEIGHTS, /* it holds weights */
    CMN_GRAPH_JOIN,    /* it joins earlier layers */
    CMN_GRAPH_LOSS,    /* it computes the loss */
    CMN_GRAPH_OTHER
};

struct cmn_graph_node {
    enum cmn_graph_kind kind;
    const char *name; /* e.g. "convolutional"; not owned by the graph */
    char detail[128]; /* "" or e.g. "3 × 3, 64 filters, leaky" */
    char output[64];  /* shape */
    size_t parameters;
};

/* Node `from` is an input of node `to`; -1 is the network's input. */
struct cmn_graph_edge {
    int from, to;
};

struct cmn_graph {
    const char *name;
    char input[64]; /* shape */
    struct cmn_graph_node *node;
    int nodes;
    struct cmn_graph_edge *edge;
    int edges;
};

/* Local. Fills *graph from the layers of net, whose tensors g lists; a layer of several, such as
 * gru, is one node. The caller keeps `name` while it uses the graph, and frees the graph. 0, or -1
 * with a reason. */
int cmn_export_graph(const struct cmn_net *net, const struct cmn_gradients *g, const char *name,
                     struct cmn_graph *graph);

/* Local. Frees what the graph holds. */
void cmn_graph_free(struct cmn_graph *g);

#endif
