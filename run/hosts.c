#include "hosts.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "diagnosis.h"
#include "messages.h"
#include "process.h"

enum { SLOTS_MAX = 65536 };

/* ---- the list ---- */

/* Names go to a remote shell: one that begins with a hyphen would be an option there. */
static int good_name(const char *name)
{
    size_t n = strlen(name);

    return n && n < CMN_HOST_NAME && name[0] != '-' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
}

static int good_slots(const char *text, int *slots)
{
    char *end;
    long n = strtol(text, &end, 10);

    *slots = (int)n;
    return isdigit((unsigned char)text[0]) && !*end && n > 0 && n <= SLOTS_MAX;
}

static void add(struct cmn_hosts *h, const char *name, int slots)
{
    for (int i = 0; i < h->count; i++) {
        if (!strcmp(h->host[i].name, name)) {
            h->host[i].slots += slots;
            return;
        }
    }
    h->host = cmn_run_realloc(h->host, (size_t)h->count + 1, sizeof *h->host);
    h->host[h->count] = (struct cmn_host){.slots = slots};
    snprintf(h->host[h->count++].name, CMN_HOST_NAME, "%s", name);
}

void cmn_hosts_parse(struct cmn_hosts *h, const char *list)
{
    char *copy = strdupa(list), *item;

    while ((item = strsep(&copy, ","))) {
        char *colon = strchr(item, ':');
        int slots = 1;
        if (colon) {
            *colon = '\0';
        }
        if (!good_name(item) || (colon && !good_slots(colon + 1, &slots))) {
            cmn_run_fatal("-hosts %s: write NAME:RANKS,NAME:RANKS…, such as node1:4,node2:4", list);
        }
        add(h, item, slots);
    }
}

static int parse_line(struct cmn_hosts *h, char *line, const char *file, int number)
{
    char *name, *word;
    int slots = 0;

    line[strcspn(line, "#\r\n")] = '\0';
    name = strtok(line, " \t");
    if (!name) {
        return 0;
    }
    while ((word = strtok(NULL, " \t"))) {
        if (!strncmp(word, "slots=", 6) && !good_slots(word + 6, &slots)) {
            return cmn_run_fail("%s:%d: %s: write a number from 1 to %d", file, number, word,
                                SLOTS_MAX);
        }
    }
    if (!good_name(name)) {
        return cmn_run_fail("%s:%d: %s is not the name of a machine", file, number, name);
    }
    if (!slots) {
        return cmn_run_fail("%s:%d: say how many ranks %s takes: slots=N", file, number, name);
    }
    add(h, name, slots);
    return 0;
}

int cmn_hosts_read(struct cmn_hosts *h, FILE *in, const char *name)
{
    char *line = NULL;
    size_t bytes = 0;
    int result = 0;

    for (int number = 1; !result && getline(&line, &bytes, in) >= 0; number++) {
        result = parse_line(h, line, name, number);
    }
    free(line);
    if (!result && ferror(in)) {
        result = cmn_run_fail("%s: %s", name, strerror(errno));
    } else if (!result && !h->count) {
        result = cmn_run_fail("%s: no machine is in it", name);
    }
    return result;
}

void cmn_hosts_replace(struct cmn_hosts *h, const struct cmn_hosts *list)
{
    struct cmn_hosts all = {0};

    for (int i = 0; i < list->count; i++) {
        const struct cmn_host *new = &list->host[i];
        add(&all, new->name, new->slots);
        all.host[i].gone = all.host[i].fresh = 1;
        for (int k = 0; k < h->count; k++) {
            if (!strcmp(h->host[k].name, new->name)) {
                all.host[i] = h->host[k];
                all.host[i].slots = new->slots;
            }
        }
    }
    free(h->host);
    *h = all;
}

struct cmn_host *cmn_hosts_find(const struct cmn_hosts *h, const char *name)
{
    size_t n = strcspn(name, ".");

    for (int i = 0; i < h->count; i++) {
        if (!strcmp(h->host[i].name, name) ||
            (strcspn(h->host[i].name, ".") == n && !strncmp(h->host[i].name, name, n))) {
            return &h->host[i];
        }
    }
    return NULL;
}

int cmn_host_is_used(const struct cmn_host *h)
{
    return !h->gone && !h->left && h->failures < CMN_FAILURES;
}

char *cmn_hosts_text(const struct cmn_hosts *h)
{
    const char *comma = "";
    size_t bytes;
    char *text;
    FILE *to = open_memstream(&text, &bytes);

    for (int i = 0; to && i < h->count; i++) {
        if (cmn_host_is_used(&h->host[i])) {
            fprintf(to, "%s%s:%d", comma, h->host[i].name, h->host[i].slots);
            comma = ",";
        }
    }
    if (!to || fclose(to)) {
        cmn_run_fatal("out of memory");
    }
    return text;
}

int cmn_hosts_ranks(const struct cmn_hosts *h)
{
    int ranks = 0;

    for (int i = 0; i < h->count; i++) {
        ranks += cmn_host_is_used(&h->host[i]) ? h->host[i].slots : 0;
    }
    return ranks;
}

int cmn_hosts_gone(const struct cmn_hosts *h)
{
    int gone = 0;

    for (int i = 0; i < h->count; i++) {
        gone += h->host[i].gone;
    }
    return gone;
}

int cmn_hosts_wrong(const struct cmn_hosts *h)
{
    int wrong = 0;

    for (int i = 0; i < h->count; i++) {
        wrong += h->host[i].gone && h->host[i].wrong;
    }
    return wrong;
}

/* ---- which of them answer ---- */

struct probe {
    pid_t pid; /* 0: answered, or never started */
    int output;
};

struct cmn_probes {
    struct cmn_hosts *hosts;
    struct probe *probe;
};

static int words_of(char *const *word)
{
    int n = 0;

    while (word[n]) {
        n++;
    }
    return n;
}

static int start(struct probe *p, const struct cmn_host *h, char *const *mpiexec,
                 char *const *command)
{
    char place[CMN_HOST_NAME + 8];
    char *const where[] = {"-host", place, "-n", "1"};
    int n = words_of(mpiexec), more = words_of(command) + 1;
    char **argv;

    p->output = memfd_create("cmn-run", MFD_CLOEXEC);
    if (p->output < 0) {
        return cmn_run_fail("%s cannot be asked: %s", h->name, strerror(errno));
    }
    snprintf(place, sizeof place, "%s:1", h->name);
    argv = cmn_run_realloc(NULL, (size_t)(n + 4 + more), sizeof *argv);
    memcpy(argv, mpiexec, (size_t)n * sizeof *argv);
    memcpy(argv + n, where, sizeof where);
    memcpy(argv + n + 4, command, (size_t)more * sizeof *argv);
    p->pid = cmn_process_start(argv, p->output, p->output);
    free(argv);
    return p->pid < 0 ? -1 : 0;
}

/* A known reason; or else the first line that is neither empty, nor part of a frame, nor of
 * mpiexec's "[host:process] ...". A greeting of the shell there may stand before either. */
static void read_why(const struct probe *p, struct cmn_host *h)
{
    char text[4096], *rest = text, *line, *first = "mpiexec starts nothing there";
    const struct cmn_unreached *known = NULL;
    const char *slurm = getenv("SLURM_JOB_NODELIST"); /* others mpiexec does not reach */
    ssize_t n = pread(p->output, text, sizeof text - 1, 0);
    int lines = 0;

    n = n < 0 ? 0 : n;
    text[n] = '\0';
    for (char *zero; (zero = memchr(text, '\0', (size_t)n));) {
        *zero = ' '; /* Open MPI 5 ends its boxes with one */
    }
    while (!known && (line = strsep(&rest, "\n"))) {
        line[strcspn(line, "\r")] = '\0';
        known = cmn_unreached_find(line);
        if (known || (line[strspn(line, "- \t")] && line[0] != '[' && !lines++)) {
            first = line;
        }
    }
    h->wrong = known && known->todo;
    if (h->wrong) {
        snprintf(h->why, sizeof h->why, "%s: %s", known->why, known->todo);
    } else {
        snprintf(h->why, sizeof h->why, "%.160s%s%s", first,
                 slurm ? "; Slurm has given this job " : "", slurm ? slurm : "");
    }
}

int cmn_probes_collect(void *probes)
{
    struct cmn_probes *all = probes;
    int missing = 0;

    for (int i = 0; i < all->hosts->count; i++) {
        struct probe *p = &all->probe[i];
        struct cmn_host *h = &all->hosts->host[i];
        int status;
        if (p->pid <= 0) {
            continue;
        }
        if (!cmn_process_ended(p->pid, &status)) {
            missing++;
            continue;
        }
        p->pid = 0;
        h->gone = status != 0;
        h->left &= !status;
        if (status) {
            read_why(p, h);
        }
    }
    return !missing || cmn_stop_signal();
}

struct cmn_probes *cmn_probes_start(struct cmn_hosts *h, char *const *mpiexec, char *const *command,
                                    int only_unused)
{
    struct cmn_probes *all = cmn_run_realloc(NULL, 1, sizeof *all);
    int result = 0;

    *all = (struct cmn_probes){h, cmn_run_realloc(NULL, (size_t)h->count, sizeof *all->probe)};
    for (int i = 0; i < h->count; i++) {
        all->probe[i] = (struct probe){0, -1};
    }
    for (int i = 0; !result && i < h->count; i++) {
        struct cmn_host *host = &h->host[i];
        if (host->failures == CMN_FAILURES || (only_unused && cmn_host_is_used(host))) {
            continue;
        }
        host->gone = 1;
        host->wrong = 0;
        snprintf(host->why, sizeof host->why, "no answer within %d s", CMN_PROBE_SECONDS);
        result = start(&all->probe[i], host, mpiexec, command);
    }
    if (result) {
        cmn_probes_end(all, 0);
    }
    return result ? NULL : all;
}

void cmn_probes_end(struct cmn_probes *p, int late)
{
    for (int i = 0; i < p->hosts->count; i++) {
        if (p->probe[i].pid > 0) {
            cmn_process_kill(p->probe[i].pid);
            p->hosts->host[i].left &= !late;
        }
        if (p->probe[i].output >= 0) {
            close(p->probe[i].output);
        }
    }
    free(p->probe);
    free(p);
}

/* With a process on another host that ends at once, such as `true`, mpiexec of Open MPI 5.0.7 hangs
 * in one of ten tries. */
int cmn_hosts_probe(struct cmn_hosts *h, char *const *mpiexec)
{
    struct cmn_probes *all = cmn_probes_start(h, mpiexec, (char *[]){"sleep", "1", NULL}, 0);

    if (all) {
        cmn_wait_until(cmn_probes_collect, all, CMN_PROBE_SECONDS);
        cmn_probes_end(all, 1);
    }
    cmn_process_end_rest(1);
    return all && !cmn_stop_signal() ? 0 : -1;
}
