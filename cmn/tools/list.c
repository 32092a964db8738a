/* `darknet cmn list`: prints the tables of communicators, compressors, keys, numbers and commands:
 * as text for people, as Markdown for docs/reference/, or with tabs between fields for
 * setup/reference.sh. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "compression/compressor.h"
#include "config/arguments.h"
#include "config/cfg_numbers.h"
#include "config/commands.h"
#include "communicators/communicator.h"
#include "config/options.h"
#include "config/pairs.h"
#include "tools/tool.h"

static const struct cmn_tool *tools;
static int tools_count;

/* ---- the rows of each table ---- */

enum { CELLS = 6 };

/* Returns the key and value that select compressor i. */
static const char *key_of(int i)
{
    static char text[64];

    snprintf(text, sizeof text, "cmn_compress=%s", cmn_compressor_at(i)->name);
    return text;
}

/* Returns what a key does, and on which other key it depends. */
static const char *meaning(const struct cmn_option_row *row)
{
    static char text[1024];
    const char *other = row->needs ? strstr(row->needs, "!=") : NULL;

    if (other) {
        snprintf(text, sizeof text, "%s; not with %.*s=%s", row->help, (int)(other - row->needs),
                 row->needs, other + 2);
    } else {
        snprintf(text, sizeof text, "%s%s%s", row->help, row->needs ? "; needs " : "",
                 row->needs ? row->needs : "");
    }
    return text;
}

static const char *does(const struct cmn_command *c)
{
    return c->does == CMN_TRAINS ? "trains" : c->does == CMN_EVALUATES ? "evaluates" : "refused";
}

/* Each of these functions fills cell[] with row i and returns 1, or returns 0 after the last
 * row. */

static int communicator(int i, const char **cell)
{
    const struct cmn_communicator *c = cmn_communicator_at(i);

    if (c) {
        cell[0] = c->name;
        cell[1] = c->cpu;
        cell[2] = c->gpu;
        cell[3] = c->use;
    }
    return c != NULL;
}

static int compressor(int i, const char **cell)
{
    const struct cmn_compressor *c = cmn_compressor_at(i);

    if (c) {
        cell[0] = key_of(i);
        cell[1] = c->wire;
        cell[2] = c->use;
        cell[3] = c->source;
    }
    return c != NULL;
}

static int key(int i, const char **cell)
{
    struct cmn_option_row row;

    if (i == cmn_options_count()) {
        return 0;
    }
    cmn_options_row(i, &row);
    cell[0] = row.key;
    cell[1] = row.value[0] ? row.value : "(empty)";
    cell[2] = row.range;
    cell[3] = meaning(&row);
    cell[4] = row.group;
    return 1;
}

static int pair(int i, const char **cell)
{
    const struct cmn_pair *p = cmn_pairs_at(i);

    if (p) {
        cell[0] = p->feature;
        cell[1] = cmn_pairs_other(p);
        cell[2] = p->why;
        cell[3] = p->instead;
    }
    return p != NULL;
}

static int number(int i, const char **cell)
{
    static char name[64], range[128], help[128];
    const struct cmn_cfg_number *n = cmn_cfg_number_at(i);

    if (n) {
        snprintf(name, sizeof name, "[%s] %s", n->section, n->key);
        cmn_cfg_number_range(n, range, sizeof range);
        snprintf(help, sizeof help, "%s%s", n->help,
                 cmn_cfg_number_is_more(n) ? " (AlexeyAB's tree)" : "");
        cell[0] = name;
        cell[1] = range;
        cell[2] = help;
    }
    return n != NULL;
}

static int command(int i, const char **cell)
{
    static char name[64];
    const struct cmn_command *c = cmn_command_at(i);

    if (c) {
        snprintf(name, sizeof name, "%s %s", c->driver, c->verb);
        cell[0] = name;
        cell[1] = does(c);
        cell[2] = c->note;
    }
    return c != NULL;
}

static int tool(int i, const char **cell)
{
    static char name[128];

    if (i == tools_count) {
        return 0;
    }
    snprintf(name, sizeof name, "darknet cmn %s%s%s", tools[i].name,
             tools[i].arguments[0] ? " " : "", tools[i].arguments);
    cell[0] = name;
    cell[1] = tools[i].help;
    return 1;
}

static int elsewhere(int i, const char **cell)
{
    cell[0] = cmn_arguments_elsewhere(i, &cell[1]);
    return cell[0] != NULL;
}

static const struct section {
    const char *name, *heading, *columns[CELLS];
    int (*row)(int i, const char **cell);
} section[] = {
    {"communicators",
     "Communicators",
     {"communicator", "CPU", "GPU", "when to use it"},
     communicator},
    {"compressors",
     "Compressors",
     {"compressor", "bytes sent by a node: n floats, M nodes", "when to use it", "source"},
     compressor},
    {"keys", "Keys", {"key", "default", "values", "meaning"}, key},
    {"pairs", "What does not go together", {"key", "does not go with", "why", "what to do"}, pair},
    {"commands",
     "Commands of Darknet",
     {"command of Darknet (`*`: any other)", "with -cmn", "what it does, or why not"},
     command},
    {"tools", "Commands of darknet-cmn", {"command", "what it does"}, tool},
    {"elsewhere",
     "Options of AlexeyAB's Darknet",
     {"option of AlexeyAB's Darknet", "with -cmn it has no effect"},
     elsewhere},
    {"numbers", "Numbers of a cfg", {"section and key", "values", "meaning"}, number},
};

enum { SECTIONS = sizeof section / sizeof section[0] };

/* ---- Markdown ---- */

static void markdown_heading(const struct section *s)
{
    int n = 0;

    for (; s->columns[n]; n++) {
        printf("| %s ", s->columns[n]);
    }
    printf("|\n");
    while (n-- > 0) {
        printf("|---");
    }
    printf("|\n");
}

/* Writes to `text` what row i has after its first cell. Returns the first cell, or NULL after the
 * last row. */
static const char *markdown_rest(const struct section *s, int i, char *text, size_t bytes)
{
    const char *cell[CELLS] = {NULL};
    size_t used = 0;

    text[0] = '\0';
    if (!s->row(i, cell)) {
        return NULL;
    }
    for (int k = 1; s->columns[k] && used < bytes; k++) {
        int is_switch = strstr(cell[k], "(0: off; others: on)") != NULL;
        used +=
            (size_t)snprintf(text + used, bytes - used, "| %s ", is_switch ? "switch" : cell[k]);
    }
    return cell[0];
}

/* Prints row i, with the first cells of all later rows that are otherwise the same. Prints nothing
 * if an earlier row did so. */
static void markdown_row(const struct section *s, int i)
{
    char rest[2048], other[2048];
    const char *name;

    markdown_rest(s, i, rest, sizeof rest);
    for (int k = 0; k < i; k++) {
        markdown_rest(s, k, other, sizeof other);
        if (!strcmp(rest, other)) {
            return;
        }
    }
    printf("| `%s`", markdown_rest(s, i, rest, sizeof rest));
    for (int k = i + 1; (name = markdown_rest(s, k, other, sizeof other)); k++) {
        if (!strcmp(rest, other)) {
            printf(", `%s`", name);
        }
    }
    printf(" %s|\n", rest);
}

/* Prints the table of a section. Keys have a table for each group. */
static void markdown_section(const struct section *s)
{
    const char *cell[CELLS] = {NULL}, *group = NULL;

    for (int i = 0; s->row(i, cell); i++) {
        if (cell[4] && cell[4] != group) {
            printf("%s### %s\n\n", i ? "\n" : "", cell[4]);
        }
        if (i == 0 || cell[4] != group) {
            markdown_heading(s);
        }
        group = cell[4];
        markdown_row(s, i);
    }
}

static int markdown(const char *name)
{
    const char *names[SECTIONS], *nearest;

    for (int i = 0; i < SECTIONS; i++) {
        names[i] = section[i].name;
        if (!name) {
            printf("%s## %s\n\n", i ? "\n" : "", section[i].heading);
        }
        if (!name || !strcmp(name, section[i].name)) {
            markdown_section(&section[i]);
        }
        if (name && !strcmp(name, section[i].name)) {
            return 0;
        }
    }
    if (!name) {
        return 0;
    }
    nearest = cmn_nearest(name, names, SECTIONS);
    fprintf(stderr, "darknet cmn list: unknown section %s", name);
    if (nearest) {
        fprintf(stderr, ": did you mean %s? Known are:", nearest);
    } else {
        fprintf(stderr, "; known are:");
    }
    for (int i = 0; i < SECTIONS; i++) {
        fprintf(stderr, "%s %s", i ? "," : "", section[i].name);
    }
    fputc('\n', stderr);
    return 1;
}

/* ---- with tabs ---- */

/* Prints lines of fields: the section's name, then the columns of the Markdown; for a key the group
 * is the last field. */
static int tabs(void)
{
    for (int i = 0; i < SECTIONS; i++) {
        const char *cell[CELLS] = {NULL};
        for (int k = 0; section[i].row(k, cell); k++) {
            printf("%s", section[i].name);
            for (int j = 0; j < CELLS && cell[j]; j++) {
                printf("\t%s", cell[j]);
            }
            putchar('\n');
        }
    }
    return 0;
}

/* ---- text ---- */

static void fit_width(int *width, const char *text)
{
    int n = (int)strlen(text);

    *width = n > *width ? n : *width;
}

/* Prints the table of a section with columns as wide as their widest text. */
static void text_columns(const struct section *s)
{
    const char *cell[CELLS] = {NULL};
    int width[CELLS] = {0};

    for (int i = 0; s->row(i, cell); i++) {
        for (int k = 0; s->columns[k]; k++) {
            fit_width(&width[k], cell[k]);
        }
    }
    for (int i = 0; s->row(i, cell); i++) {
        for (int k = 0; s->columns[k]; k++) {
            printf("  %-*s", s->columns[k + 1] ? width[k] : 0, cell[k]);
        }
        putchar('\n');
    }
}

static void text_compressors(void)
{
    const char *cell[CELLS];

    for (int i = 0; compressor(i, cell); i++) {
        printf("  %s\n      %s\n      sent by a node: %s%s%s\n", cell[0], cell[2], cell[1],
               cell[3][0] ? "\n      source: " : "", cell[3]);
    }
}

void cmn_tool_list_keys(void)
{
    const char *cell[CELLS], *group = NULL;

    printf("Keys of [net], or -KEY VALUE on the command line:\n");
    for (int i = 0; key(i, cell); i++) {
        if (cell[4] != group) {
            printf("\n%s\n\n", cell[4]);
        }
        group = cell[4];
        printf("  %s=%s\n      %s\n      values: %s\n", cell[0],
               strcmp(cell[1], "(empty)") ? cell[1] : "", cell[3], cell[2]);
    }
}

static int text_pairs(void)
{
    const char *cell[CELLS];

    for (int i = 0; pair(i, cell); i++) {
        printf("%s and %s:\n    %s: %s\n", cell[0], cell[1], cell[2], cell[3]);
    }
    return 0;
}

static int text(void)
{
    printf("Communicators (cmn_communicator): name, CPU, GPU, when to use it:\n\n");
    text_columns(&section[0]);
    printf("\nCompressors, between nodes (n floats, M nodes):\n\n");
    text_compressors();
    putchar('\n');
    cmn_tool_list_keys();
    printf("\nCommands of Darknet, and what each does with -cmn (*: any other):\n\n");
    text_columns(&section[4]);
    return 0;
}

int cmn_tool_list(int argc, char **argv, const struct cmn_tool *table, int count)
{
    int md = argc > 1 && !strcmp(argv[1], "-md"), tsv = argc > 1 && !strcmp(argv[1], "-tsv");

    tools = table;
    tools_count = count;
    if (argc == 1) {
        return text();
    }
    if (argc == 2 && !strcmp(argv[1], "-pairs")) {
        return text_pairs();
    }
    if (md && argc < 4) {
        return markdown(argv[2]);
    }
    if (tsv && argc == 2) {
        return tabs();
    }
    fprintf(stderr,
            "darknet cmn list: unknown argument %s; known are: -pairs, -md [SECTION], -tsv\n",
            argv[md || tsv ? argc - 1 : 1]);
    return 1;
}
