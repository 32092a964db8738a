/* `darknet cmn list`: communicators, compressors, keys and commands, as text or as Markdown. */
#include <stdio.h>
#include <string.h>

#include "compression/compressor.h"
#include "config/commands.h"
#include "communicators/communicator.h"
#include "config/options.h"
#include "tools/tool.h"

static void fit_width(int *width, const char *text)
{
    int n = (int)strlen(text);

    *width = n > *width ? n : *width;
}

/* The key that selects compressor i, and its value. */
static const char *key_of(int i)
{
    static char text[64];
    const char *name = cmn_compressor_at(i)->name;

    snprintf(text, sizeof text, "%s=%s",
             !strcmp(name, "fp16") || !strcmp(name, "bf16") ? "cmn_allreduce_dtype"
                                                            : "cmn_compress",
             name);
    return text;
}

static void compressors(void)
{
    const struct cmn_compressor *c;

    printf("\nCompressors, between nodes (n floats, M nodes):\n\n");
    for (int i = 0; (c = cmn_compressor_at(i)); i++) {
        printf("  %s\n      %s\n      sent by a node: %s%s%s\n", key_of(i), c->use, c->wire,
               c->source[0] ? "\n      source: " : "", c->source);
    }
}

static const char *does(const struct cmn_command *c)
{
    return c->does == CMN_TRAINS ? "trains" : c->does == CMN_EVALUATES ? "evaluates" : "refused";
}

static void commands(const char *line)
{
    const struct cmn_command *c;
    char name[64];

    for (int i = 0; (c = cmn_command_at(i)); i++) {
        snprintf(name, sizeof name, "%s %s", c->driver, c->verb);
        printf(line, name, does(c), c->note);
    }
}

static void text(void)
{
    int name = 4, cpu = 3, gpu = 3; /* columns: as wide as the widest text */
    const struct cmn_communicator *c;
    struct cmn_option_row row;

    for (int i = 0; (c = cmn_communicator_at(i)); i++) {
        fit_width(&name, c->name);
        fit_width(&cpu, c->cpu);
        fit_width(&gpu, c->gpu);
    }
    printf("Communicators (cmn_communicator):\n\n  %-*s  %-*s  %-*s  %s\n", name, "name", cpu,
           "CPU", gpu, "GPU", "when to use it");
    for (int i = 0; (c = cmn_communicator_at(i)); i++) {
        printf("  %-*s  %-*s  %-*s  %s\n", name, c->name, cpu, c->cpu, gpu, c->gpu, c->use);
    }
    compressors();
    printf("\nKeys of [net], or -KEY VALUE on the command line:\n\n");
    for (int i = 0; i < cmn_options_count(); i++) {
        cmn_options_row(i, &row);
        printf("  %s=%s\n      %s\n      values: %s\n", row.key, row.value, row.help, row.range);
    }
    printf("\nCommands of Darknet, and what each does with -cmn (*: any other):\n\n");
    commands("  %-17s %-9s %s\n");
}

static void markdown(void)
{
    const struct cmn_communicator *c;
    struct cmn_option_row row;

    printf("| communicator | CPU | GPU | when to use it |\n|---|---|---|---|\n");
    for (int i = 0; (c = cmn_communicator_at(i)); i++) {
        printf("| `%s` | %s | %s | %s |\n", c->name, c->cpu, c->gpu, c->use);
    }
    printf("\n| compressor | bytes sent by a node: n floats, M nodes | when to use it | source |\n"
           "|---|---|---|---|\n");
    for (int i = 0; cmn_compressor_at(i); i++) {
        printf("| `%s` | %s | %s | %s |\n", key_of(i), cmn_compressor_at(i)->wire,
               cmn_compressor_at(i)->use, cmn_compressor_at(i)->source);
    }
    printf("\n| key | default | values | meaning |\n|---|---|---|---|\n");
    for (int i = 0; i < cmn_options_count(); i++) {
        cmn_options_row(i, &row);
        printf("| `%s` | %s | %s | %s |\n", row.key, row.value[0] ? row.value : "(empty)",
               row.range, row.help);
    }
    printf("\n| command of Darknet (`*`: any other) | with -cmn | what it does, or why not "
           "|\n|---|---|---|\n");
    commands("| `%s` | %s | %s |\n");
}

int cmn_tool_list(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "-md")) {
        markdown();
        return 0;
    }
    if (argc > 1) {
        fprintf(stderr, "darknet cmn list: unknown argument %s; known is: -md\n", argv[1]);
        return 1;
    }
    text();
    return 0;
}
