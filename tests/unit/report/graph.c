#include "folder.h"

#include "engine/darknet_net.h"
#include "engine/gradients.h"
#include "nets.h"
#include "engine/graph_export.h"
#include "report/graph.h"

#define NET "[net]\nbatch=2\nheight=16\nwidth=16\nchannels=3\n"
#define CONV(n) \
    "[convolutional]\nbatch_normalize=1\nfilters=" #n "\nsize=3\npad=1\nactivation=leaky\n"

#ifdef NETWORKS_BY_VALUE
#define REORG_SAYS "" /* a type that pjreddie's does not have */
#else
#define REORG_SAYS "/ 2"
#endif

static const char all_sorts[] = NET CONV(4) "[maxpool]\nsize=2\nstride=2\n" CONV(
    4) "[shortcut]\nfrom=-2\nactivation=linear\n"
       "[upsample]\nstride=2\n"
       "[route]\nlayers=-1,0\n"
       "[reorg]\nstride=2\n"
       "[dropout]\nprobability=.25\n"
       "[local]\nfilters=1\nsize=3\nstride=2\npad=1\nactivation=relu\n"
       "[connected]\noutput=21\nactivation=relu\n"
       "[route]\nlayers=0\n"
       "[convolutional]\nfilters=21\nsize=1\nstride=4\nactivation=linear\n"
       "[yolo]\nmask=0,1,2\nanchors=1,1, 2,2, 3,3\nclasses=2\nnum=3\n";

static void outline(const char *cfg, struct cmn_graph *graph)
{
    network *net = nets_parse(cfg);
    struct cmn_gradients g;

    cmn_gradients_open(&g, cmn_net_of(net), NULL);
    *graph = cmn_export_graph(cmn_net_of(net), &g, "net");
    cmn_gradients_close(&g);
    nets_free(net);
}

static void assert_node(const struct cmn_graph *g, int i, enum cmn_graph_kind kind,
                        const char *name, const char *detail, const char *output, size_t parameters)
{
    assert_in_range(i, 0, g->nodes - 1);
    assert_string_equal(g->node[i].name, name);
    assert_string_equal(g->node[i].detail, detail);
    assert_string_equal(g->node[i].output, output);
    assert_int_equal(g->node[i].parameters, parameters);
    assert_int_equal(g->node[i].kind, kind);
}

static void assert_edges(const struct cmn_graph *g, const struct cmn_graph_edge *edge, int n)
{
    assert_int_equal(g->edges, n);
    for (int i = 0; i < n; i++) {
        if (g->edge[i].from != edge[i].from || g->edge[i].to != edge[i].to) {
            fail_msg("edge %d is %d to %d, not %d to %d", i, g->edge[i].from, g->edge[i].to,
                     edge[i].from, edge[i].to);
        }
    }
}

TEST(layers_become_nodes)
{
    const struct cmn_graph_edge edges[] = {{-1, 0}, {0, 1}, {1, 2},  {2, 3},   {1, 3},
                                           {3, 4},  {4, 5}, {0, 5},  {5, 6},   {6, 7},
                                           {7, 8},  {8, 9}, {0, 10}, {10, 11}, {11, 12}};
    struct cmn_graph g;

    outline(all_sorts, &g);
    assert_int_equal(g.nodes, 13);
    assert_string_equal(g.input, "16 × 16 × 3");
    assert_node(&g, 0, CMN_GRAPH_WEIGHTS, "convolutional", "3 × 3, 4 filters, batch norm, leaky",
                "16 × 16 × 4", 3 * 3 * 3 * 4 + 2 * 4);
    assert_node(&g, 1, CMN_GRAPH_OTHER, "maxpool", "2 × 2, stride 2", "8 × 8 × 4", 0);
    assert_node(&g, 3, CMN_GRAPH_JOIN, "shortcut", "plus layer 1, linear", "8 × 8 × 4", 0);
    assert_node(&g, 4, CMN_GRAPH_OTHER, "upsample", "× 2", "16 × 16 × 4", 0);
    assert_node(&g, 5, CMN_GRAPH_JOIN, "route", "layer 4, 0", "16 × 16 × 8", 0);
    assert_node(&g, 6, CMN_GRAPH_OTHER, "reorg", REORG_SAYS, "8 × 8 × 32", 0);
    assert_node(&g, 7, CMN_GRAPH_OTHER, "dropout", "probability 0.25", "8 × 8 × 32", 0);
    assert_node(&g, 8, CMN_GRAPH_WEIGHTS, "local", "3 × 3, stride 2, 1 filter, relu", "4 × 4 × 1",
                3 * 3 * 32 * 16 + 16);
    assert_node(&g, 9, CMN_GRAPH_WEIGHTS, "connected", "relu", "21 values", 16 * 21 + 21);
    assert_node(&g, 10, CMN_GRAPH_JOIN, "route", "layer 0", "16 × 16 × 4", 0);
    assert_node(&g, 12, CMN_GRAPH_LOSS, "yolo", "3 boxes a place, 2 classes", "4 × 4 × 21", 0);
    assert_edges(&g, edges, COUNT(edges));
    cmn_graph_free(&g);
}

/* ---- the file ---- */

TEST(the_file_is_dot)
{
    struct cmn_graph_node node[] = {
        {CMN_GRAPH_WEIGHTS, "one", "a \"quote\" and a \\", "1 × 1", 1234567},
        {CMN_GRAPH_LOSS, "two", "", "2\nvalues", 0},
    };
    struct cmn_graph_edge edge[] = {{-1, 0}, {0, 1}};
    struct cmn_graph g = {
        .name = "it's \"it\"", .input = "3", .node = node, .nodes = 2, .edge = edge, .edges = 2};
    char *name =
             file_of("x", "digraph network {\n  graph [fontname=\"Helvetica\", labelloc=t, old"),
         *text;

    assert_int_equal(cmn_graph_write(&g, name), 0);
    text = text_of(name);
    assert_int_equal(strncmp(text, "digraph network {\n", 18), 0);
    check_contains(text, "label=\"it's \\\"it\\\": 1 234 567 parameters\"");
    check_contains(
        text, "label=\"0  one\\na \\\"quote\\\" and a \\\\\\n1 × 1\\n1 234 567 parameters\"];\n");
    check_contains(text, "label=\"1  two\\n2?values\"];\n");
    check_contains(text, "\n  input -> layer0;\n  layer0 -> layer1;\n}\n");
    check_alone(name);
}

TEST(says_why_it_cannot)
{
    struct cmn_graph g = {.name = "none", .input = "1"};
    char *name = file_of("x", "[net]"), inside[4200];

    snprintf(inside, sizeof inside, "%s/net.dot", name);
    assert_fails(cmn_graph_write(&g, inside) == -1, inside);
    check_contains(cmn_reason(), "Not a directory");
    assert_fails(cmn_graph_write(&g, "/dev/null") == -1, "/dev/null");
    assert_fails(cmn_graph_write(&g, name) == -1, "is no graph");
    assert_string_equal(text_of(name), "[net]");
}

TESTS(make_folder, remove_folder)
