#include "lookout.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "diagnosis.h"
#include "messages.h"
#include "mpiexec.h"
#include "process.h"

enum {
    ANSWER_SECONDS = 20,
    TEXT_MAX = 1 << 20 /* bytes */
};

/* A question is a process that answers by what it prints, and by its status. */
struct question {
    pid_t pid; /* 0: there is none */
    int output;
};

static struct {
    struct cmn_run_options *options;
    char *const *check;
    char *running; /* the machines of the attempt, as mpiexec has them; NULL: none runs */
    double next;   /* when to look again */
    double until;  /* how long to wait for answers */
    struct question discoverer;
    struct question *asked; /* one for each machine; NULL: none is asked */
    char *list;             /* the text that the machines are from */
} lookout;

/* ---- questions ---- */

static int start(struct question *q, char *const *argv, int with_errors)
{
    q->output = memfd_create("cmn-run", MFD_CLOEXEC);
    if (q->output < 0) {
        return cmn_run_fail("an answer cannot be kept: %s", strerror(errno));
    }
    q->pid = cmn_process_start(argv, q->output, with_errors ? q->output : -1);
    lookout.until = cmn_clock() + ANSWER_SECONDS;
    if (q->pid < 0) {
        close(q->output);
        q->pid = 0;
        return -1;
    }
    return 0;
}

/* Returns the text that fd has; the caller frees it. */
static char *text_of(int fd)
{
    char *text = cmn_run_realloc(NULL, TEXT_MAX, 1);
    ssize_t n = pread(fd, text, TEXT_MAX - 1, 0);

    text[n < 0 ? 0 : n] = '\0';
    for (char *zero; n > 0 && (zero = memchr(text, '\0', (size_t)n));) {
        *zero = '\n'; /* Open MPI 5 ends its boxes with a zero byte */
    }
    return text;
}

/* Returns whether the question has been answered, or takes too long: then *status is -1. The caller
 * frees *text. */
static int is_answered(struct question *q, int *status, char **text)
{
    if (!cmn_process_ended(q->pid, status)) {
        if (cmn_clock() < lookout.until && !cmn_stop_signal()) {
            return 0;
        }
        cmn_process_kill(q->pid);
        *status = -1;
    }
    *text = text_of(q->output);
    close(q->output);
    q->pid = 0;
    return 1;
}

static void forget(struct question *q)
{
    if (q->pid) {
        cmn_process_kill(q->pid);
        close(q->output);
        q->pid = 0;
    }
}

/* ---- the list ---- */

/* Takes machines from what a file or a command holds, unless it held the same before. A list with a
 * mistake changes nothing. Frees text. */
static int take(char *text, const char *name)
{
    struct cmn_hosts list = {0};

    if (lookout.list && !strcmp(text, lookout.list)) {
        free(text);
        return 0;
    }
    free(lookout.list);
    lookout.list = text;
    if (cmn_hosts_read(&list, text, name)) {
        free(list.host);
        return -1;
    }
    cmn_hosts_replace(&lookout.options->hosts, &list);
    return 0;
}

static int read_file(const char *name)
{
    int fd = open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC), result;
    struct stat st;

    if (fd < 0) {
        return cmn_run_fail("-hostfile %s: %s", name, strerror(errno));
    }
    if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        result = cmn_run_fail("-hostfile %s: no regular file, which could be read again: -discover "
                              "COMMAND takes what a command prints",
                              name);
    } else {
        result = take(text_of(fd), name);
    }
    close(fd);
    return result;
}

static int start_discovery(void)
{
    char *command = (char *)lookout.options->discover;

    return start(&lookout.discoverer, (char *[]){"sh", "-c", command, NULL}, 0);
}

/* Returns whether the command of -discover has ended; *result is as of cmn_lookout_read(). */
static int has_discovered(void *result)
{
    const char *command = lookout.options->discover;
    int status;
    char *text;

    if (!is_answered(&lookout.discoverer, &status, &text)) {
        return 0;
    }
    if (status < 0) {
        free(text);
        *(int *)result =
            cmn_run_fail("-discover %s: it has not answered within %d s", command, ANSWER_SECONDS);
    } else if (status) {
        free(text);
        *(int *)result = cmn_run_fail("-discover %s: it failed", command);
    } else {
        *(int *)result = take(text, command);
    }
    return 1;
}

int cmn_lookout_read(struct cmn_run_options *o)
{
    int result = 0;

    lookout.options = o;
    if (o->hostfile) {
        return read_file(o->hostfile);
    }
    if (o->discover && !(result = start_discovery())) {
        cmn_wait_until(has_discovered, &result, ANSWER_SECONDS + 1);
    }
    return result;
}

/* ---- which machines answer ---- */

/* Finds a known reason, or else the first line that is neither empty, nor part of a frame, nor one
 * of mpiexec's "[host:process] ...". A greeting of the remote shell may stand before either. */
static void take_refusal(struct cmn_host *h, char *text)
{
    char *line, *first = "mpiexec starts nothing there";
    const struct cmn_unreached *known = NULL;
    const char *slurm = getenv("SLURM_JOB_NODELIST"); /* mpiexec reaches no other machines */
    int lines = 0;

    while (!known && (line = strsep(&text, "\n"))) {
        line[strcspn(line, "\r")] = '\0';
        known = cmn_unreached_find(line);
        if (known || (line[strspn(line, "- \t")] && line[0] != '[' && !lines++)) {
            first = line;
        }
    }
    h->gone = known && known->todo ? CMN_HOST_WRONG : CMN_HOST_GONE;
    if (h->gone == CMN_HOST_WRONG) {
        snprintf(h->why, sizeof h->why, "%s: %s", known->why, known->todo);
    } else {
        snprintf(h->why, sizeof h->why, "%.160s%s%s", first,
                 slurm ? "; Slurm has given this job " : "", slurm ? slurm : "");
    }
}

/* Asks all machines, or those on which no rank runs, by an mpiexec that starts this command there.
 * Returns how many are asked, or -1 after saying why none can be. */
static int ask(int all, char *const *command)
{
    const struct cmn_hosts *h = &lookout.options->hosts;
    int n = 0;

    lookout.asked = cmn_run_realloc(NULL, (size_t)h->count, sizeof *lookout.asked);
    memset(lookout.asked, 0, (size_t)h->count * sizeof *lookout.asked);
    for (int i = 0; i < h->count; i++) {
        char place[CMN_HOST_NAME + 8];
        if (h->host[i].failures == CMN_FAILURES || (!all && cmn_host_is_used(&h->host[i]))) {
            continue;
        }
        snprintf(place, sizeof place, "%s:1", h->host[i].name);
        if (start(&lookout.asked[i], cmn_mpiexec_words(lookout.options, place, 1, command), 1)) {
            return -1;
        }
        n++;
    }
    return n;
}

/* Takes the answers that have come. Returns whether there is nothing to wait for. A machine that
 * was left may be used again once it did not answer. */
static int have_answered(void *unused)
{
    const struct cmn_hosts *h = &lookout.options->hosts;
    int missing = 0;

    (void)unused;
    for (int i = 0; i < h->count; i++) {
        struct cmn_host *host = &h->host[i];
        char *text;
        int status;
        if (!lookout.asked[i].pid) {
            continue;
        }
        if (!is_answered(&lookout.asked[i], &status, &text)) {
            missing++;
            continue;
        }
        host->gone = CMN_HOST_HERE;
        if (status > 0) {
            take_refusal(host, text);
        } else if (status < 0) {
            host->gone = CMN_HOST_GONE;
            snprintf(host->why, sizeof host->why, "no answer within %d s", ANSWER_SECONDS);
        } else {
            host->told[0] = '\0';
        }
        host->left &= !host->gone;
        free(text);
    }
    return !missing;
}

static void stop_asking(void)
{
    for (int i = 0; lookout.asked && i < lookout.options->hosts.count; i++) {
        forget(&lookout.asked[i]);
    }
    free(lookout.asked);
    lookout.asked = NULL;
}

/* With a process on another host that ends at once, such as `true`, mpiexec of Open MPI 5.0.7 hangs
 * in one of ten tries. */
int cmn_lookout_ask(void)
{
    int result = ask(1, (char *[]){"sleep", "1", NULL});

    if (result >= 0) {
        cmn_wait_until(have_answered, NULL, ANSWER_SECONDS + 1);
    }
    stop_asking();
    cmn_process_end_rest(1);
    return result < 0 || cmn_stop_signal() ? -1 : 0;
}

/* ---- while a training runs ---- */

void cmn_lookout_begin(char *const *check)
{
    const struct cmn_hosts *h = &lookout.options->hosts;

    for (int i = 0; i < h->count; i++) {
        h->host[i].runs = cmn_host_is_used(&h->host[i]);
    }
    lookout.check = check;
    lookout.running = cmn_hosts_text(h);
    lookout.next = cmn_clock() + (double)lookout.options->interval;
}

static int are_others(void)
{
    char *now = cmn_hosts_text(&lookout.options->hosts);
    int others = now[0] && cmn_hosts_differ(&lookout.options->hosts, lookout.running);

    if (others) {
        cmn_journal_say("move", "%s instead of %s: the ranks save, and start again there", now,
                        lookout.running);
    }
    free(now);
    return others;
}

int cmn_lookout_sees_others(void)
{
    const struct cmn_run_options *o = lookout.options;
    int result;

    if (lookout.asked) {
        if (!have_answered(NULL)) {
            return 0;
        }
        stop_asking();
        cmn_hosts_report(&lookout.options->hosts, "it will be asked again", 1);
        return are_others();
    }
    if (lookout.discoverer.pid) {
        if (!has_discovered(&result)) {
            return 0;
        }
    } else if (!lookout.running || cmn_clock() < lookout.next) {
        return 0;
    } else {
        lookout.next = cmn_clock() + (double)o->interval;
        if (o->discover) {
            start_discovery();
            return 0;
        }
        if (o->hostfile) {
            read_file(o->hostfile);
        }
    }
    /* Machines that are no longer in the list are reason enough. */
    if (are_others()) {
        return 1;
    }
    if (ask(0, lookout.check) <= 0) {
        stop_asking();
    }
    return 0;
}

void cmn_lookout_end(void)
{
    stop_asking();
    forget(&lookout.discoverer);
    free(lookout.running);
    lookout.running = NULL;
}
