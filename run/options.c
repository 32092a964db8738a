#include "options.h"

#include <ctype.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wordexp.h>

#include "command.h"
#include "messages.h"

enum { NUMBER_MAX = 1000000 };

/* `cmn-run -list` prints this table for the man page, completion and the table of
 * docs/use/cmn-run.md. */
static const struct {
    const char *name, *value, *help; /* value NULL: the option takes none */
} table[] = {
    {"n", "N", "number of ranks; without it one for each core of this machine"},
    {"hosts", "a:4,b:4", "machines, and how many ranks each takes"},
    {"hostfile", "FILE",
     "the same from lines NAME slots=N of a hostfile, which is read again when it changes"},
    {"discover", "COMMAND", "the same from what this command prints every -interval seconds"},
    {"interval", "SECONDS",
     "how long a training runs at least before it moves to other machines; default 10"},
    {"dry-run", NULL, "print the mpiexec line, and start nothing"},
    {"retries", "K",
     "further attempts without a new checkpoint in between; default 3, or 0 without "
     "cmn_checkpoint"},
    {"wait", "SECONDS", "time to wait for lost machines before continuing without them; default 0"},
    {"journal", "FILE", "file for the journal; default cmn-run.log"},
    {"mpi", "OPTIONS",
     "more words for mpiexec, which win over what cmn-run chooses; may be given more than once"},
    {"list", NULL, "print these options, one a line: name, value and help, with tabs between"},
    {"help", NULL, "print this help"},
};

enum {
    RANKS,
    HOSTS,
    HOSTFILE,
    DISCOVER,
    INTERVAL,
    DRY_RUN,
    RETRIES,
    WAIT,
    JOURNAL,
    MPI,
    LIST,
    HELP,
    OPTIONS
};

static _Noreturn void help(void)
{
    printf("usage: cmn-run [OPTION]... [--] darknet classifier train my.data my.cfg -cmn\n\n"
           "Starts the command on several processes (ranks) by mpiexec of Open MPI. With "
           "-cmn_checkpoint 500 in the\ncommand it starts it again from its last checkpoint when "
           "a rank or a machine fails.\n\n");
    for (int i = 0; i < OPTIONS; i++) {
        const char *value = table[i].value ? table[i].value : "";
        printf("  -%-8s %-8s  %s\n", table[i].name, value, table[i].help);
    }
    printf("\nExit status: the job's own; 75 after a failure that no further attempt follows; 128 "
           "plus the signal's\nnumber when a signal asked to stop. docs/use/cmn-run.md says "
           "more.\n");
    cmn_run_printed();
}

static _Noreturn void list(void)
{
    for (int i = 0; i < OPTIONS; i++) {
        const char *value = table[i].value ? table[i].value : "";
        printf("-%s\t%s\t%s\n", table[i].name, value, table[i].help);
    }
    cmn_run_printed();
}

static long number(int option, const char *value, long low)
{
    char *end;
    long n = strtol(value, &end, 10);

    if (!isdigit((unsigned char)value[0]) || *end || n < low || n > NUMBER_MAX) {
        cmn_run_fatal("-%s %s: write a number from %ld to %d", table[option].name, value, low,
                      NUMBER_MAX);
    }
    return n;
}

/* Separates the words as a shell does, but runs no command. */
static void add_mpi(struct cmn_run_options *o, const char *value)
{
    static wordexp_t words;

    if (wordexp(value, &words, WRDE_NOCMD | (o->mpi ? WRDE_APPEND : 0))) {
        cmn_run_fatal("-mpi %s: a quote is not closed, or a line break or one of |&;<>(){}` is "
                      "outside of quotes",
                      value);
    }
    o->mpi = words.we_wordv;
}

static void set(struct cmn_run_options *o, int option, const char *value)
{
    if (table[option].value && !strcmp(value, "--")) {
        cmn_run_fatal("-%s: %s is missing", table[option].name, table[option].value);
    }
    switch (option) {
    case HOSTS:
        cmn_hosts_parse(&o->hosts, value);
        break;
    case HOSTFILE:
        o->hostfile = value;
        break;
    case DISCOVER:
        o->discover = value;
        break;
    case INTERVAL:
        o->interval = number(option, value, 0);
        break;
    case RANKS:
        o->ranks = number(option, value, 1);
        break;
    case RETRIES:
        o->retries = number(option, value, 0);
        break;
    case WAIT:
        o->wait = number(option, value, 0);
        break;
    case JOURNAL:
        if (!value[0]) {
            cmn_run_fatal("-journal: FILE is missing");
        }
        o->journal = value;
        o->journal_given = 1;
        break;
    case DRY_RUN:
        o->dry_run = 1;
        break;
    case MPI:
        add_mpi(o, value);
        break;
    case LIST:
        list();
    default:
        help();
    }
}

/* Returns how many words behind this one are its values, whatever they look like. */
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

int cmn_run_options_list(const struct cmn_run_options *o)
{
    return o->hosts.count || o->hostfile || o->discover;
}

/* Refuses words of -mpi that cmn-run passes itself: mpiexec would silently take one of the two. */
static void check_mpi(struct cmn_run_options *o)
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
            if (strcmp(word + 1 + (word[1] == '-'), ours[k].name)) {
                continue;
            }
            o->mpi_names_machines |= !is_ranks;
            if (is_ranks || cmn_run_options_list(o)) {
                cmn_run_fatal("-mpi '%s ...': cmn-run itself tells mpiexec: give it %s", word,
                              is_ranks && cmn_run_options_list(o) ? "-hosts node1:4,node2:4"
                                                                  : ours[k].instead);
            }
        }
    }
}

static void check(struct cmn_run_options *o)
{
    if (!!o->hosts.count + !!o->hostfile + !!o->discover > 1) {
        cmn_run_fatal("one of -hosts, -hostfile and -discover names the machines");
    }
    if (o->ranks && cmn_run_options_list(o)) {
        cmn_run_fatal("-n: the machines say how many ranks there are: -hosts node1:4,node2:4");
    }
    check_mpi(o);
    if (!o->command[0]) {
        cmn_run_fatal("the command is missing: cmn-run -n 4 -- darknet classifier train ...");
    }
}

/* Refuses options of cmn-run behind Darknet's name, which has none of these names. */
static void refuse_behind_darknet(char *const *word)
{
    int behind = 0;

    for (; *word; word++) {
        for (int i = HOSTS; behind && i <= MPI && (*word)[0] == '-'; i++) {
            if (!strcmp(*word + 1 + ((*word)[1] == '-'), table[i].name)) {
                cmn_run_fatal("%s: an option of cmn-run stands before the command: cmn-run %s ... "
                              "-- darknet ...",
                              *word, *word);
            }
        }
        behind |= cmn_command_is_darknet(*word);
    }
}

void cmn_run_options_read(struct cmn_run_options *o, int argc, char **argv)
{
    struct option names[OPTIONS + 1] = {{0}};
    int option;

    for (int i = 0; i < OPTIONS; i++) {
        names[i] = (struct option){table[i].name, table[i].value ? required_argument : no_argument,
                                   NULL, i};
    }
    *o = (struct cmn_run_options){.retries = -1, .interval = 10, .journal = "cmn-run.log"};
    add_mpi(o, "");
    opterr = 0;
    /* +: the options end at the first word that is none. */
    while ((option = getopt_long_only(argc, argv, "+:h", names, NULL)) != -1) {
        if (option == ':') {
            cmn_run_fatal("-%s: %s is missing", table[optopt].name, table[optopt].value);
        }
        if (option == '?') {
            cmn_run_fatal("%s: no such option; cmn-run -help lists them, and those of mpiexec go "
                          "into -mpi '...'",
                          argv[optind - 1]);
        }
        set(o, option == 'h' ? HELP : option, optarg);
    }
    if (argc < 2) {
        help();
    }
    o->command = argv + optind;
    refuse_behind_darknet(o->command);
    check(o);
}
