#include "mpiexec.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "messages.h"

/* ---- this machine ---- */

/* Whether this is the first hardware thread of its core, of those that may be used. Without /sys
 * each counts as a core. */
static int is_first_of_core(int cpu, const cpu_set_t *mine)
{
    char name[96];
    int first = cpu, last;
    FILE *file;

    snprintf(name, sizeof name, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    file = fopen(name, "r");
    while (file && fscanf(file, "%d", &last) == 1) { /* "0,8" or "0-1" */
        first = last < first && CPU_ISSET(last, mine) ? last : first;
        if (getc(file) == EOF) {
            break;
        }
    }
    if (file) {
        fclose(file);
    }
    return first == cpu;
}

int cmn_mpiexec_cores(void)
{
    cpu_set_t mine;
    int cores = 0;

    if (sched_getaffinity(0, sizeof mine, &mine)) {
        return (int)sysconf(_SC_NPROCESSORS_ONLN); /* more than the set has room for */
    }
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        cores += CPU_ISSET(cpu, &mine) && is_first_of_core(cpu, &mine);
    }
    return cores;
}

/* ---- what is chosen ---- */

/* Whether one of these parts, with blanks between, stands in a word. */
static int has_part(char *const *word, const char *parts)
{
    char *rest = strdupa(parts), *part;

    while ((part = strsep(&rest, " "))) {
        for (char *const *w = word; *w; w++) {
            if (strstr(*w, part)) {
                return 1;
            }
        }
    }
    return 0;
}

int cmn_mpiexec_is_here(const struct cmn_run_options *o)
{
    static const char *const jobs[] = {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "PE_HOSTFILE"};

    for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++) {
        if (getenv(jobs[i])) {
            return 0;
        }
    }
    return !cmn_run_options_list(o) && !o->mpi_names_machines;
}

enum when { ALWAYS, AS_ROOT, MORE_RANKS_THAN_CORES, SEVERAL_MACHINES };

/* Open MPI refuses root, and more ranks than cores. It binds two ranks to a core each, with their
 * loader and BLAS threads, and the ranks of a second job to the same cores. A rank that waits would
 * keep its core from them.
 *
 * By default mpiexec says which rank has died, and passes on what the others say of it, only after
 * it has slept twice between its SIGTERM and SIGKILL for the others; ranks that save have their
 * time after SIGUSR1 (job.c). And it asks only after two hours whether other machines are still
 * there. */
static const struct {
    enum when when;
    const char *unless; /* one of these is part of a word of -mpi */
    char *word[4];
} chosen[] = {
    {AS_ROOT, "allow-run-as-root", {"--allow-run-as-root"}},
    {MORE_RANKS_THAN_CORES, "oversubscribe map-by", {"--oversubscribe"}},
    {ALWAYS,
     "bind-to binding_policy map-by mapping_policy rankfile cpu-set cpu-list cpus-per",
     {"--bind-to", "none"}},
    {ALWAYS, "yield_when_idle", {"--mca", "mpi_yield_when_idle", "1"}},
    {ALWAYS, "sigkill_timeout", {"--mca", "odls_base_sigkill_timeout", "0"}},
    {SEVERAL_MACHINES, "oob_tcp_keepalive", {"--mca", "oob_tcp_keepalive_time", "5"}},
    {SEVERAL_MACHINES, "oob_tcp_keepalive", {"--mca", "oob_tcp_keepalive_intvl", "1"}},
    {SEVERAL_MACHINES, "oob_tcp_keepalive", {"--mca", "oob_tcp_keepalive_probes", "5"}},
};

/* Returns how many ranks there will be. Where mpiexec finds the machines itself, Slurm says it. */
static int machines(const struct cmn_run_options *o)
{
    const char *nodes = getenv("SLURM_JOB_NUM_NODES");

    return o->hosts.count || !nodes ? o->hosts.count : atoi(nodes);
}

static int is(enum when when, const struct cmn_run_options *o)
{
    switch (when) {
    case AS_ROOT:
        return geteuid() == 0;
    case MORE_RANKS_THAN_CORES: /* with -hosts the list says how many each machine takes */
        return cmn_mpiexec_is_here(o) && o->ranks > cmn_mpiexec_cores();
    case SEVERAL_MACHINES:
        return machines(o) > 1;
    default:
        return 1;
    }
}

static char **list;
static size_t used;

static void append(char *const *words)
{
    for (; *words; words++) {
        list = cmn_run_realloc(list, used + 2, sizeof *list);
        list[used++] = *words;
        list[used] = NULL;
    }
}

char **cmn_mpiexec_words(const struct cmn_run_options *o, char *hosts, int ranks,
                         char *const *command)
{
    static char number[16];

    used = 0;
    append((char *[]){"mpiexec", NULL});
    for (size_t i = 0; i < sizeof chosen / sizeof chosen[0]; i++) {
        if (!has_part(o->mpi, chosen[i].unless) && is(chosen[i].when, o)) {
            append(chosen[i].word);
        }
    }
    append(o->mpi);
    if (hosts[0]) {
        append((char *[]){"-host", hosts, NULL});
    }
    if (ranks) {
        snprintf(number, sizeof number, "%d", ranks);
        append((char *[]){"-n", number, NULL});
    }
    append(command);
    return list;
}

char *cmn_mpiexec_text(char *const *word)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%^";
    size_t bytes;
    char *text;
    FILE *to = open_memstream(&text, &bytes);

    for (int i = 0; to && word[i]; i++) {
        const char *quote = word[i][0] && !word[i][strspn(word[i], plain)] ? "" : "'";
        fprintf(to, "%s%s", i ? " " : "", quote);
        for (const char *c = word[i]; *c; c++) {
            fprintf(to, *c == '\'' ? "'\\''" : "%c", *c);
        }
        fputs(quote, to);
    }
    if (!to || fclose(to)) {
        cmn_run_fatal("out of memory");
    }
    return text;
}
