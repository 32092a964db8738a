#include "options.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "say.h"

enum { MOST = 1000000 };

static int set_hosts(struct cmn_run_options *o, char *value)
{
    return cmn_hosts_parse(&o->hosts, value);
}

static int set_hostfile(struct cmn_run_options *o, char *value)
{
    return cmn_hosts_read(&o->hosts, value);
}

static int number(const char *name, const char *value, long low, long *to)
{
    char *end;

    *to = strtol(value, &end, 10);
    if (!isdigit((unsigned char)value[0]) || *end || *to < low || *to > MOST) {
        return cmn_run_fail("%s %s: a number from %ld to %d is wanted", name, value, low, MOST);
    }
    return 0;
}

static int set_ranks(struct cmn_run_options *o, char *value)
{
    return number("-n", value, 1, &o->ranks);
}

static int set_retries(struct cmn_run_options *o, char *value)
{
    return number("-retries", value, 0, &o->retries);
}

static int set_wait(struct cmn_run_options *o, char *value)
{
    return number("-wait", value, 0, &o->wait);
}

static int set_journal(struct cmn_run_options *o, char *value)
{
    o->journal = value;
    return value[0] ? 0 : cmn_run_fail("-journal: the name of a file is wanted");
}

static int add_mpi(struct cmn_run_options *o, char *value)
{
    char *word, *rest = value;
    int n = 0;

    while (o->mpi[n]) {
        n++;
    }
    while ((word = strsep(&rest, " \t"))) {
        char **more = word[0] ? realloc(o->mpi, (size_t)(n + 2) * sizeof *more) : NULL;
        if (!word[0]) {
            continue;
        }
        if (!more) {
            return cmn_run_fail("out of memory");
        }
        o->mpi = more;
        more[n++] = word;
        more[n] = NULL;
    }
    return 0;
}

static const struct option {
    const char *name, *value, *help;
    int (*set)(struct cmn_run_options *o, char *value);
} table[] = {
    {"-hosts", "a:4,b:4", "machines, and how many ranks each takes", set_hosts},
    {"-hostfile", "FILE", "the same from a hostfile of Open MPI: lines \"NAME slots=N\"",
     set_hostfile},
    {"-n", "N", "ranks, where mpiexec finds the machines itself, or there is this one alone",
     set_ranks},
    {"-retries", "K", "tries after the first without a new checkpoint in between (3)", set_retries},
    {"-wait", "SECONDS", "wait so long for machines that are gone before going on without them (0)",
     set_wait},
    {"-journal", "FILE", "what happened, line by line (cmn-run.log in the current folder)",
     set_journal},
    {"-mpi", "OPTIONS", "more words for mpiexec, at blanks; may be given more than once", add_mpi},
};

enum { OPTIONS = sizeof table / sizeof table[0] };

static void help(void)
{
    printf("usage: cmn-run [OPTION VALUE]... -- darknet classifier train my.data my.cfg -cmn "
           "-cmn_checkpoint 500\n\n"
           "Starts the command under mpiexec, and starts it again from its last checkpoint when a "
           "rank or a machine is lost.\n\n");
    for (int i = 0; i < OPTIONS; i++) {
        printf("  %-9s %-8s  %s\n", table[i].name, table[i].value, table[i].help);
    }
    printf("\nExit status: the job's own; 75 when it was given up after losses; 128 plus the "
           "signal's number when a signal asked to stop.\n"
           "docs/cmn-run.md says more.\n");
}

static int take(struct cmn_run_options *o, char **argv)
{
    const char *name = argv[0];

    if (!strncmp(name, "--", 2)) {
        name++;
    }
    for (int i = 0; i < OPTIONS; i++) {
        if (strcmp(table[i].name, name)) {
            continue;
        }
        if (!argv[1] || !strcmp(argv[1], "--")) {
            return cmn_run_fail("%s: %s is missing", name, table[i].value);
        }
        return table[i].set(o, argv[1]);
    }
    return cmn_run_fail("%s: no such option, or `--` is missing before the command: cmn-run --help "
                        "lists them",
                        argv[0]);
}

/* Words behind this one that are its values, whatever they look like. */
static int values_of(char *const *word, int i)
{
    static const struct {
        const char *name;
        int values;
    } takes[] = {{"mca", 2}, {"gmca", 2}, {"x", 1}};
    int there = 0;

    for (size_t k = 0; word[i][0] == '-' && k < sizeof takes / sizeof takes[0]; k++) {
        if (!strcmp(word[i] + 1 + (word[i][1] == '-'), takes[k].name)) {
            while (there < takes[k].values && word[i + 1 + there]) {
                there++;
            }
        }
    }
    return there;
}

/* Of what cmn-run tells mpiexec itself mpiexec would take one alone, without a word. */
static int check_mpi(const struct cmn_run_options *o)
{
    static const struct {
        const char *name, *instead;
    } ours[] = {
        {"n", "-n"},
        {"np", "-n"},
        {"c", "-n"},
        {"app", "-n"},
        {"host", "-hosts"},
        {"H", "-hosts"},
        {"hostfile", "-hostfile"},
        {"machinefile", "-hostfile"},
    };

    for (int i = 0; o->mpi[i]; i += 1 + values_of(o->mpi, i)) {
        const char *word = o->mpi[i];
        for (size_t k = 0; word[0] == '-' && k < sizeof ours / sizeof ours[0]; k++) {
            int is_ranks = !strcmp(ours[k].instead, "-n");
            if ((is_ranks || o->hosts.count) &&
                !strcmp(word + 1 + (word[1] == '-'), ours[k].name)) {
                return cmn_run_fail("-mpi '%s ...': that is cmn-run's to say: %s", word,
                                    is_ranks && o->hosts.count ? "-hosts node1:4,node2:4"
                                                               : ours[k].instead);
            }
        }
    }
    return 0;
}

static int check(const struct cmn_run_options *o)
{
    if (o->ranks && o->hosts.count) {
        return cmn_run_fail(
            "-n: the machines say how many ranks there are: -hosts node1:4,node2:4");
    }
    if (!o->ranks && !o->hosts.count) {
        return cmn_run_fail(
            "say how many ranks: -n 4, or on which machines: -hosts node1:4,node2:4");
    }
    if (check_mpi(o)) {
        return -1;
    }
    return o->word[0] ? 0 : cmn_run_fail("the command is missing behind --");
}

int cmn_run_options_read(struct cmn_run_options *o, char **argv)
{
    memset(o, 0, sizeof *o);
    o->retries = 3;
    o->journal = "cmn-run.log";
    o->mpi = calloc(1, sizeof *o->mpi);
    if (!o->mpi) {
        return cmn_run_fail("out of memory");
    }
    argv++;
    if (!argv[0] || !strcmp(argv[0], "--help") || !strcmp(argv[0], "-help") ||
        !strcmp(argv[0], "-h")) {
        help();
        return 1;
    }
    for (; *argv && strcmp(*argv, "--"); argv += 2) {
        if (take(o, argv)) {
            return -1;
        }
    }
    if (!*argv) {
        return cmn_run_fail("the command is missing: -- darknet classifier train …");
    }
    o->word = argv + 1;
    return check(o);
}

void cmn_run_options_free(struct cmn_run_options *o)
{
    cmn_hosts_free(&o->hosts);
    free(o->mpi);
}
