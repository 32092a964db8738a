/* A network as a graph of layers; an edge says which layer is an input of which. All functions are
 * local. */
#ifndef CMN_GRAPH_EXPORT_H
#define CMN_GRAPH_EXPORT_H

#include <stddef.h>

struct cmn_gradients;
struct cmn_net;

enum cmn_graph_kind {
    CMN_GRAPH_WEIGHTS, /* has weights */
    CMN_GRAPH_JOIN,    /* combines earlier layers */
    CMN_GRAPH_LOSS,    /* computes the loss */
    CMN_GRAPH_OTHER
};

/* One layer. */
struct cmn_graph_node {
    enum cmn_graph_kind kind;
    const char *name; /* e.g. "convolutional"; static */
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

/* Returns the graph of net; g lists the tensors of net. `name` must outlive the graph.
 * cmn_graph_free() frees it. */
struct cmn_graph cmn_export_graph(const struct cmn_net *net, const struct cmn_gradients *g,
                                  const char *name);

void cmn_graph_free(struct cmn_graph *graph);

#endif
