#include "report/graph.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/atomic_file.h"
#include "base/log.h"
#include "mpi/files.h"

static const char *const colour[] = {
    [CMN_GRAPH_WEIGHTS] = "#cfe3f3",
    [CMN_GRAPH_JOIN] = "#d5eddd",
    [CMN_GRAPH_LOSS] = "#f8d9c4",
    [CMN_GRAPH_OTHER] = "#f2f2f2",
};

/* Writes text that stands between DOT's double quotes. */
static void escaped(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') {
            putc('\\', out);
        }
        putc((unsigned char)*text < ' ' ? '?' : *text, out);
    }
}

/* Writes 1234567 as "1 234 567". */
static void grouped(FILE *out, size_t n)
{
    if (n >= 1000) {
        grouped(out, n / 1000);
        fprintf(out, " %03zu", n % 1000);
    } else {
        fprintf(out, "%zu", n);
    }
}

static void node(FILE *out, int i, const struct cmn_graph_node *n)
{
    fprintf(out, "  layer%d [fillcolor=\"%s\", label=\"%d  ", i, colour[n->kind], i);
    escaped(out, n->name);
    if (n->detail[0]) {
        fputs("\\n", out);
        escaped(out, n->detail);
    }
    fputs("\\n", out);
    escaped(out, n->output);
    if (n->parameters) {
        fputs("\\n", out);
        grouped(out, n->parameters);
        fputs(" parameters", out);
    }
    fputs("\"];\n", out);
}

/* Every graph begins with this text; only a file that begins with it may be replaced. */
static const char head[] = "digraph network {\n  graph [fontname=\"Helvetica\", labelloc=t, ";

static void write_to(FILE *out, const struct cmn_graph *g)
{
    size_t parameters = 0;

    for (int i = 0; i < g->nodes; i++) {
        parameters += g->node[i].parameters;
    }
    fprintf(out, "%slabel=\"", head);
    escaped(out, g->name);
    fputs(": ", out);
    grouped(out, parameters);
    fputs(" parameters\"];\n"
          "  node [shape=box, style=\"rounded,filled\", color=\"#666666\", fontname=\"Helvetica\", "
          "fontsize=11];\n"
          "  edge [color=\"#444444\", arrowsize=0.7];\n"
          "  input [shape=ellipse, fillcolor=\"#ffffff\", label=\"input\\n",
          out);
    escaped(out, g->input);
    fputs("\"];\n", out);
    for (int i = 0; i < g->nodes; i++) {
        node(out, i, &g->node[i]);
    }
    for (int i = 0; i < g->edges; i++) {
        const struct cmn_graph_edge *e = &g->edge[i];
        if (e->from < 0) {
            fprintf(out, "  input -> layer%d;\n", e->to);
        } else {
            fprintf(out, "  layer%d -> layer%d;\n", e->from, e->to);
        }
    }
    fputs("}\n", out);
}

int cmn_graph_write(const struct cmn_graph *g, const char *file)
{
    struct cmn_draft draft;

    if (cmn_files_replaceable("graph", file, head, NULL, 0)) {
        return -1;
    }
    if (!cmn_draft_open(&draft, file)) {
        write_to(draft.out, g);
        if (!cmn_draft_commit(&draft, file)) {
            return 0;
        }
    }
    return cmn_fail("graph %s: %s", file, strerror(errno));
}
