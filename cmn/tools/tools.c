#include "tools/tools.h"

#include <stdio.h>
#include <string.h>

static int help(int argc, char **argv);

static const struct cmn_tool table[] = {
    {"list", "[-md]", "communicators and keys, as text or as Markdown", cmn_tool_list},
    {"man", "", "the manual page, for man(1)", cmn_tool_man},
    {"help", "", "this list", help},
};

enum { TOOLS = sizeof table / sizeof table[0] };

const struct cmn_tool *cmn_tool_at(int i)
{
    return i >= 0 && i < TOOLS ? &table[i] : NULL;
}

static void usage(FILE *out)
{
    for (int i = 0; i < TOOLS; i++) {
        fprintf(out, "  darknet cmn %-5s %-6s %s\n", table[i].name, table[i].arguments,
                table[i].help);
    }
}

static int help(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    usage(stdout);
    return 0;
}

int cmn_tools_run(int argc, char **argv)
{
    for (int i = 0; i < TOOLS && argc > 2; i++) {
        if (!strcmp(argv[2], table[i].name)) {
            return table[i].run(argc - 2, argv + 2);
        }
    }
    if (argc > 2) {
        fprintf(stderr, "darknet cmn: unknown command %s; known are:\n", argv[2]);
    } else {
        fprintf(stderr, "darknet cmn: a command is missing; known are:\n");
    }
    usage(stderr);
    return 1;
}
