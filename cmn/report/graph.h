/* The network as a graph for Graphviz (cmn_graph), in the DOT language. Local. */
#ifndef CMN_GRAPH_H
#define CMN_GRAPH_H

#include "engine/graph_export.h"

/* Writes the graph to a temporary file, which then replaces `file` atomically. A file that is not
 * such a graph is not replaced. 0, or -1 with a reason. */
int cmn_graph_write(const struct cmn_graph *g, const char *file);

#endif
