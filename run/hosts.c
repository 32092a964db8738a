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

static void parse_line(struct cmn_hosts *h, char *line, const char *file, int number)
{
    char *name, *word;
    int slots = 0;

    line[strcspn(line, "#\r\n")] = '\0';
    name = strtok(line, " \t");
    if (!name) {
        return;
    }
    while ((word = strtok(NULL, " \t"))) {
        if (!strncmp(word, "slots=", 6) && !good_slots(word + 6, &slots)) {
            cmn_run_fatal("%s:%d: %s: write a number from 1 to %d", file, number, word, SLOTS_MAX);
        }
    }
    if (!good_name(name)) {
        cmn_run_fatal("%s:%d: %s is not the name of a machine", file, number, name);
    }
    if (!slots) {
        cmn_run_fatal("%s:%d: say how many ranks %s takes: slots=N", file, number, name);
    }
    add(h, name, slots);
}

void cmn_hosts_read(struct cmn_hosts *h, const char *file)
{
    FILE *in = fopen(file, "r");
    char *line = NULL;
    size_t bytes = 0;

    for (int number = 1; in && getline(&line, &bytes, in) >= 0; number++) {
        parse_line(h, line, file, number);
    }
    if (!in || ferror(in)) {
        cmn_run_fatal("-hostfile %s: %s", file, strerror(errno));
    }
    if (!h->count) {
        cmn_run_fatal("-hostfile %s: no machine is in it", file);
    }
    free(line);
    fclose(in);
}

char *cmn_hosts_text(const struct cmn_hosts *h)
{
    const char *comma = "";
    size_t bytes;
    char *text;
    FILE *to = open_memstream(&text, &bytes);

    for (int i = 0; to && i < h->count; i++) {
        if (!h->host[i].gone) {
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
        ranks += h->host[i].gone ? 0 : h->host[i].slots;
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

struct probes {
    struct cmn_hosts *hosts;
    struct probe *probe;
};

/* With a process on another host that ends at once, such as `true`, mpiexec of Open MPI 5.0.7 hangs
 * in one of ten tries. */
static int start(struct probe *p, const struct cmn_host *h, char *const *mpiexec)
{
    char place[CMN_HOST_NAME + 8];
    char *const tail[] = {"-host", place, "-n", "1", "sleep", "1", NULL};
    char **argv;
    int n = 0;

    while (mpiexec[n]) {
        n++;
    }
    p->output = memfd_create("cmn-run", MFD_CLOEXEC);
    if (p->output < 0) {
        return cmn_run_fail("%s cannot be asked: %s", h->name, strerror(errno));
    }
    snprintf(place, sizeof place, "%s:1", h->name);
    argv = cmn_run_realloc(NULL, (size_t)n + sizeof tail / sizeof tail[0], sizeof *argv);
    memcpy(argv, mpiexec, (size_t)n * sizeof *argv);
    memcpy(argv + n, tail, sizeof tail);
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

/* Takes the answers that have come. Returns whether there is nothing to wait for. */
static int collect(void *of)
{
    const struct probes *all = of;
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
        if (status) {
            read_why(p, h);
        }
    }
    return !missing || cmn_stop_signal();
}

int cmn_hosts_probe(struct cmn_hosts *h, char *const *mpiexec)
{
    struct probes all = {h, cmn_run_realloc(NULL, (size_t)h->count, sizeof *all.probe)};
    int result = 0;

    for (int i = 0; i < h->count; i++) {
        all.probe[i] = (struct probe){0, -1};
    }
    for (int i = 0; !result && i < h->count; i++) {
        h->host[i].gone = 1;
        h->host[i].wrong = 0;
        snprintf(h->host[i].why, sizeof h->host[i].why, "no answer within %d s", CMN_PROBE_SECONDS);
        result = start(&all.probe[i], &h->host[i], mpiexec);
    }
    if (!result) {
        cmn_wait_until(collect, &all, CMN_PROBE_SECONDS);
        result = cmn_stop_signal() ? -1 : 0;
    }
    for (int i = 0; i < h->count; i++) {
        if (all.probe[i].pid > 0) {
            cmn_process_kill(all.probe[i].pid);
        }
        if (all.probe[i].output >= 0) {
            close(all.probe[i].output);
        }
    }
    free(all.probe);
    cmn_process_end_rest(1);
    return result;
}
