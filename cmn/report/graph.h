/* A network as a graph for Graphviz (cmn_graph); knows nothing of Darknet. All local. */
#ifndef CMN_GRAPH_H
#define CMN_GRAPH_H

#include <stddef.h>

enum cmn_graph_kind {
    CMN_GRAPH_WEIGHTS, /* it holds weights */
    CMN_GRAPH_JOIN,    /* it brings earlier layers together */
    CMN_GRAPH_LOSS,    /* the loss comes from it */
    CMN_GRAPH_OTHER
};

struct cmn_graph_node {
    enum cmn_graph_kind kind;
    const char *name; /* e.g. "convolutional"; not the graph's own */
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

/* Writes the graph in the DOT language to the file, which is replaced as a whole. 0, or -1 with a reason. */
int cmn_graph_write(const struct cmn_graph *g, const char *file);

void cmn_graph_free(struct cmn_graph *g);

#endif
