/* A network's outline: which layers it has, and which is an input of which. */
#ifndef CMN_OUTLINE_H
#define CMN_OUTLINE_H

struct cmn_gradients;
struct cmn_graph;
struct cmn_net;

/* Local. Fills *graph from the layers of net, whose tensors g lists; a layer of several, such as gru, is one node. `name` must
 * outlive the graph, which the caller frees. 0, or -1 with a reason. */
int cmn_export_graph(const struct cmn_net *net, const struct cmn_gradients *g, const char *name,
                     struct cmn_graph *graph);

#endif
