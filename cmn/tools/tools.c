#include "tools/tools.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fatal.h"
#include "base/launcher.h"
#include "base/log.h"
#include "communicators/communicator.h"
#include "config/options.h"
#include "mpi/files.h"

static int help(int argc, char **argv);
static int man(int argc, char **argv);

static const struct cmn_tool table[] = {
    {"list", "[-md]", "communicators and keys, as text or as Markdown", cmn_tool_list, NULL, 0},
    {"check", "[CFG]",
     "under mpiexec: what each rank is and has, whether the ranks reach each other, what is wrong",
     NULL, cmn_tool_check, 1},
    {"doctor", "DATA CFG",
     "images, labels, classes, keys and memory of a training, before it begins; under mpiexec the "
     "ranks divide the images; status 1 where something is wrong",
     NULL, cmn_tool_doctor, 0},
    {"bench", "[-sizes LIST] [-communicators LIST] [-iters N] [-json]",
     "under mpiexec: time and bandwidth of each communicator and of MPI_Allreduce, sums verified",
     NULL, cmn_tool_bench, 0},
    {"chart", "LOG.json PICTURE.png",
     "draws a training's log, as cmn_chart draws it during the training", cmn_tool_chart, NULL, 0},
    {"checkpoint", "FILE",
     "what a checkpoint holds, and of when; status 1 and the reason when it is damaged",
     cmn_tool_checkpoint, NULL, 0},
    {"man", "", "the manual page, for man(1)", man, NULL, 0},
    {"help", "", "this list", help, NULL, 0},
};

enum { TOOLS = sizeof table / sizeof table[0] };

#define NOTE "check, doctor and bench take -cmn_KEY VALUE and -nogpu, too."

static void usage(FILE *out)
{
    for (int i = 0; i < TOOLS; i++) {
        fprintf(out, "  darknet cmn %s%s%s\n      %s\n", table[i].name,
                table[i].arguments[0] ? " " : "", table[i].arguments, table[i].help);
    }
    fprintf(out, "%s\n", NOTE);
}

static int help(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    usage(stdout);
    return 0;
}

/* ---- the manual page ---- */

/* Escapes a leading dot or quote, backslashes and hyphens, which mean something to roff. */
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

static int man(int argc, char **argv)
{
    const struct cmn_communicator *c;
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
    for (int i = 0; i < TOOLS; i++) {
        printf(".TP\n.B darknet cmn %s ", table[i].name);
        roff(table[i].arguments);
        roff(table[i].help);
    }
    printf(".PP\n");
    roff(NOTE);
    printf(
        ".SH EXIT STATUS\n0 when all went well; 128 plus the signal's number when a signal ended "
        "the training and the weights were saved; else not 0 on every process.\n");
    return 0;
}

/* ---- running a tool ---- */

const struct cmn_tool *cmn_tool_find(int argc, char **argv)
{
    const char *name[TOOLS], *nearest;

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
    usage(stderr);
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

/* Flushes what has been printed. 0, or -1 with a reason when any of it could not be written. */
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
