#include "lookout.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "messages.h"
#include "mpiexec.h"
#include "process.h"

enum { LIST_MAX = 1 << 20 }; /* bytes */

static struct {
    struct cmn_run_options *options;
    char *const *check;
    char *running;    /* the machines of the attempt, as mpiexec has them */
    double next;      /* when to look again */
    double until;     /* how long to wait for what runs */
    pid_t discoverer; /* the command of -discover; 0: it does not run */
    int output;       /* what it has printed */
    struct cmn_probes *probes;
    char *list; /* the text that the machines are from */
} lookout;

/* ---- the list ---- */

/* Takes machines from what a file or a command holds, unless it held the same before. A list with a
 * mistake changes nothing. Frees text. */
static int take(struct cmn_run_options *o, char *text, const char *name)
{
    struct cmn_hosts list = {0};
    FILE *in;
    int result = 0;

    if (lookout.list && !strcmp(text, lookout.list)) {
        free(text);
        return 0;
    }
    free(lookout.list);
    lookout.list = text;
    in = fmemopen(text, strlen(text) + 1, "r");
    result = in ? cmn_hosts_read(&list, in, name) : cmn_run_fail("%s: out of memory", name);
    if (in) {
        fclose(in);
    }
    if (!result && !o->hosts.count) {
        o->hosts = list; /* the first one: all of them have to be there */
        return 0;
    }
    if (!result) {
        cmn_hosts_replace(&o->hosts, &list);
    }
    free(list.host);
    return result;
}

/* Returns all that fd has, and closes it. */
static char *read_all(int fd)
{
    char *text = cmn_run_realloc(NULL, LIST_MAX, 1);
    size_t bytes = 0;
    ssize_t n;

    while ((n = pread(fd, text + bytes, LIST_MAX - 1 - bytes, (off_t)bytes)) > 0) {
        bytes += (size_t)n;
    }
    text[bytes] = '\0';
    close(fd);
    return text;
}

static int read_file(struct cmn_run_options *o)
{
    int fd = open(o->hostfile, O_RDONLY | O_CLOEXEC);

    return fd < 0 ? cmn_run_fail("-hostfile %s: %s", o->hostfile, strerror(errno))
                  : take(o, read_all(fd), o->hostfile);
}

static int start_discovery(const struct cmn_run_options *o)
{
    char *const words[] = {"sh", "-c", (char *)o->discover, NULL};

    lookout.output = memfd_create("cmn-run", MFD_CLOEXEC);
    lookout.discoverer = lookout.output < 0 ? -1 : cmn_process_start(words, lookout.output, -1);
    lookout.until = cmn_clock() + CMN_PROBE_SECONDS;
    if (lookout.discoverer < 0) {
        close(lookout.output);
        lookout.discoverer = 0;
        return cmn_run_fail("-discover %s: it cannot be started", o->discover);
    }
    return 0;
}

/* Returns whether the command has ended, or takes too long. */
static int discovery_ended(void *status)
{
    if (cmn_process_ended(lookout.discoverer, status)) {
        return 1;
    }
    if (cmn_clock() < lookout.until && !cmn_stop_signal()) {
        return 0;
    }
    cmn_process_kill(lookout.discoverer);
    *(int *)status = 1;
    return 1;
}

static int take_discovered(struct cmn_run_options *o, int status)
{
    char *text = read_all(lookout.output);

    lookout.discoverer = 0;
    if (!status) {
        return take(o, text, o->discover);
    }
    free(text);
    return cmn_run_fail("-discover %s: it failed", o->discover);
}

int cmn_lookout_read(struct cmn_run_options *o)
{
    int status = 1;

    if (o->hostfile) {
        return read_file(o);
    }
    if (!o->discover) {
        return 0;
    }
    if (start_discovery(o)) {
        return -1;
    }
    cmn_wait_until(discovery_ended, &status, CMN_PROBE_SECONDS + 1);
    return take_discovered(o, status);
}

/* ---- while a training runs ---- */

void cmn_lookout_begin(struct cmn_run_options *o, char *const *check)
{
    lookout.options = o;
    lookout.check = check;
    lookout.running = cmn_hosts_text(&o->hosts);
    lookout.next = cmn_clock() + (double)o->interval;
}

static int are_others(void)
{
    char *now = cmn_hosts_text(&lookout.options->hosts);
    int others = strcmp(now, lookout.running) && now[0];

    if (others) {
        cmn_journal_say("move", "%s instead of %s: the ranks save, and start again there", now,
                        lookout.running);
    }
    free(now);
    return others;
}

static int has_unused(const struct cmn_hosts *h)
{
    int unused = 0;

    for (int i = 0; i < h->count; i++) {
        unused += !cmn_host_is_used(&h->host[i]) && h->host[i].failures < CMN_FAILURES;
    }
    return unused;
}

/* The list is up to date. Machines that are no longer in it are a reason by themselves. */
static int ask_unused(void)
{
    struct cmn_run_options *o = lookout.options;
    char **mpiexec;

    if (are_others()) {
        return 1;
    }
    if (has_unused(&o->hosts)) {
        mpiexec = cmn_mpiexec_options(o);
        lookout.probes = cmn_probes_start(&o->hosts, mpiexec, lookout.check, 1);
        lookout.until = cmn_clock() + CMN_PROBE_SECONDS;
        free(mpiexec);
    }
    return 0;
}

static void take_answers(void)
{
    const struct cmn_hosts *h = &lookout.options->hosts;

    cmn_probes_end(lookout.probes, 1);
    lookout.probes = NULL;
    for (int i = 0; i < h->count; i++) {
        struct cmn_host *host = &h->host[i];
        if (host->gone && strcmp(host->told, host->why)) {
            cmn_journal_say("gone", "%s:%d cannot be used: %s", host->name, host->slots, host->why);
        }
        snprintf(host->told, sizeof host->told, "%s", host->gone ? host->why : "");
    }
}

int cmn_lookout_sees_others(void)
{
    struct cmn_run_options *o = lookout.options;
    int status;

    if (lookout.probes) {
        if (!cmn_probes_collect(lookout.probes) && cmn_clock() < lookout.until) {
            return 0;
        }
        take_answers();
        return are_others();
    }
    if (lookout.discoverer) {
        if (!discovery_ended(&status)) {
            return 0;
        }
        take_discovered(o, status);
        return ask_unused();
    }
    if (!o || cmn_clock() < lookout.next) {
        return 0;
    }
    lookout.next = cmn_clock() + (double)o->interval;
    if (o->discover) {
        start_discovery(o);
        return 0;
    }
    if (o->hostfile) {
        read_file(o);
    }
    return ask_unused();
}

void cmn_lookout_end(void)
{
    if (lookout.probes) {
        cmn_probes_end(lookout.probes, 0);
        lookout.probes = NULL;
    }
    if (lookout.discoverer) {
        cmn_process_kill(lookout.discoverer);
        close(lookout.output);
        lookout.discoverer = 0;
    }
    free(lookout.running);
    lookout.running = NULL;
    lookout.options = NULL;
}
