#include <stdio.h>

#include "communicators/communicator.h"
#include "config/options.h"
#include "tools/tools.h"

/* roff takes a leading dot or quote, and every backslash and hyphen, for its own. */
static void roff(const char *s)
{
    if (*s == '.' || *s == '\'') {
        fputs("\\&", stdout);
    }
    for (; *s; s++) {
        if (*s == '\\') {
            fputs("\\e", stdout);
        } else if (*s == '-') {
            fputs("\\-", stdout);
        } else {
            putchar(*s);
        }
    }
    putchar('\n');
}

static void term(const char *name, const char *value)
{
    printf(".TP\n.B ");
    if (value && value[0]) {
        printf("%s=%s\n", name, value);
    } else {
        roff(name);
    }
}

int cmn_tool_man(int argc, char **argv)
{
    const struct cmn_communicator *c;
    const struct cmn_tool *tool;
    struct cmn_option_row row;

    (void)argc;
    (void)argv;
    printf(".TH DARKNET-CMN 1\n.SH NAME\ndarknet\\-cmn \\- Darknet, trained on many processes\n"
           ".SH SYNOPSIS\n.B mpiexec \\-n\n.I N\n.B darknet classifier train\n"
           ".I data cfg\n.RI [ weights ]\n.B \\-cmn\n.RB [ \\-cmn_key\n.IR value ]...\n.br\n"
           ".B darknet cmn\n.I command\n"
           ".SH DESCRIPTION\nWith\n.B \\-cmn\nevery process of the job holds the whole network, "
           "takes its share of the batch, and applies the same update. Without it the program is "
           "Darknet.\n.SH KEYS\nIn the [net] section of a cfg, or on the command line.\n");
    for (int i = 0; i < cmn_options_count(); i++) {
        cmn_options_row(i, &row);
        term(row.key, row.value);
        roff(row.help);
        printf(".br\nValues: ");
        roff(row.range);
    }
    printf(".SH COMMUNICATORS\n");
    for (int i = 0; (c = cmn_communicator_at(i)); i++) {
        term(c->name, NULL);
        roff(c->use);
    }
    printf(".SH COMMANDS\n");
    for (int i = 0; (tool = cmn_tool_at(i)); i++) {
        printf(".TP\n.B darknet cmn %s ", tool->name);
        roff(tool->arguments);
        roff(tool->help);
    }
    printf(".PP\n");
    roff(CMN_TOOLS_NOTE);
    printf(
        ".SH EXIT STATUS\n0 when all went well; 128 plus the signal's number when a signal ended "
        "the training and the weights were saved; else not 0 on every process.\n");
    return 0;
}
