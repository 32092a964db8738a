#include "tools/tools.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/launcher.h"
#include "base/log.h"
#include "config/options.h"
#include "mpi/files.h"

static int list(int argc, char **argv);
static int help(int argc, char **argv);

static const struct cmn_tool table[] = {
    {"list", "[-pairs] [-md [SECTION]] [-tsv]",
     "communicators, compressors, keys and commands, or what does not go together (-pairs): as "
     "text, as Markdown (-md, or one section of it), or with a tab between fields (-tsv)",
     list, NULL, 0},
    {"check", "[CFG]",
     "under mpiexec: what each rank is and has, whether the ranks reach each other, what is wrong",
     NULL, cmn_tool_check, 1},
    {"doctor", "DATA CFG",
     "images, labels, classes, keys and memory of a training, before it begins; under mpiexec the "
     "ranks divide the images; status 1 where something is wrong",
     NULL, cmn_tool_doctor, 0},
    {"bench", "[-sizes LIST] [-communicators LIST] [-iters N]",
     "under mpiexec: time and bandwidth of each communicator and of MPI_Allreduce, sums verified; "
     "sizes in bytes, or with K, M, G (powers of 1024)",
     NULL, cmn_tool_bench, 0},
    {"chart", "LOG.json PICTURE.png", "draws a training's log, as cmn_chart does at each row",
     cmn_tool_chart, NULL, 0},
    {"checkpoint", "FILE",
     "what a checkpoint holds, and of when; status 1 and the reason when it is damaged",
     cmn_tool_checkpoint, NULL, 0},
    {"help", "", "this list", help, NULL, 0},
};

enum { TOOLS = sizeof table / sizeof table[0] };

#define NOTE "check, doctor and bench take -cmn_KEY VALUE and -nogpu, too."

/* Prints the usage of the tool of this name; of all tools if the name is "" or unknown. */
static void usage(FILE *out, const char *name)
{
    int shown = 0;

    for (; !shown; name = "") { /* the second round shows all if no tool has the name */
        for (int i = 0; i < TOOLS; i++) {
            if (!name[0] || !strcmp(name, table[i].name)) {
                fprintf(out, "  darknet cmn %s%s%s\n      %s\n", table[i].name,
                        table[i].arguments[0] ? " " : "", table[i].arguments, table[i].help);
                shown++;
            }
        }
    }
    fprintf(out, "%s\n", NOTE);
}

/* Serves `darknet cmn help`, `darknet cmn help TOOL` and `darknet cmn TOOL -h`. */
static int help(int argc, char **argv)
{
    const char *name = strcmp(argv[0], "help") ? argv[0] : argc > 1 ? argv[1] : "";

    usage(stdout, name);
    return 0;
}

static int list(int argc, char **argv)
{
    return cmn_tool_list(argc, argv, table, TOOLS);
}

/* ---- running a tool ---- */

const struct cmn_tool *cmn_tool_find(int argc, char **argv)
{
    const char *name[TOOLS], *nearest;
    const char *last = argv[argc - 1];

    if (!strcmp(last, "-h") || !strcmp(last, "--help")) {
        return &table[TOOLS - 1]; /* help */
    }
    for (int i = 0; i < TOOLS; i++) {
        name[i] = table[i].name;
        if (argc > 2 && !strcmp(argv[2], name[i])) {
            return &table[i];
        }
    }
    if (cmn_launcher_rank() > 0) {
        return NULL; /* rank 0 prints the message */
    }
    nearest = argc > 2 ? cmn_nearest(argv[2], name, TOOLS) : NULL;
    if (nearest) {
        fprintf(stderr, "darknet cmn: unknown command %s: did you mean %s? Known are:\n", argv[2],
                nearest);
    } else if (argc > 2) {
        fprintf(stderr, "darknet cmn: unknown command %s; known are:\n", argv[2]);
    } else {
        fprintf(stderr, "darknet cmn: a command is missing; known are:\n");
    }
    usage(stderr, "");
    return NULL;
}

void cmn_tool_compare(int argc, char **argv, const struct cmn_session *s)
{
    char *text = NULL, keys[8192];
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);

    if (!out) {
        cmn_fatal("out of memory");
    }
    if (cmn_options_print(&s->options, keys, sizeof keys)) {
        cmn_fatal_reason();
    }
    for (int i = 1; i < argc; i++) {
        fprintf(out, "%s%s", i > 1 ? " " : "", argv[i]);
    }
    fprintf(out, "\n%s", keys);
    fclose(out);
    cmn_files_compare("command line", text, &s->topology);
    free(text);
}

/* Flushes the standard output. 0, or -1 with a reason if any of it could not be written. */
static int flush_output(void)
{
    int failed = ferror(stdout);

    errno = 0;
    if (fflush(stdout) || failed) {
        return cmn_fail("the output cannot be written%s%s", errno ? ": " : "",
                        errno ? strerror(errno) : "");
    }
    return 0;
}

int cmn_tool_run(const struct cmn_tool *tool, int argc, char **argv)
{
    int status = tool->run(argc, argv);

    if (flush_output()) {
        fprintf(stderr, "darknet cmn %s: %s\n", tool->name, cmn_reason());
        status = 1;
    }
    return status;
}

void cmn_tool_run_job(const struct cmn_tool *tool, struct cmn_tool_call *call)
{
    tool->job(call);
    if (flush_output()) {
        cmn_fatal_reason();
    }
}
