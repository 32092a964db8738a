/* Which machines are there: cmn_hosts_ask() of hosts.h. */
#include "hosts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "events.h"
#include "say.h"

struct question {
    pid_t pid; /* 0: answered, or never asked */
    int output;
};

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int start(struct question *q, struct cmn_host *h, char *const *mpi_words)
{
    char place[CMN_HOST_NAME + 8];
    char **argv;
    int n = 0;

    while (mpi_words[n]) {
        n++;
    }
    argv = calloc((size_t)n + 8, sizeof *argv);
    q->output = memfd_create("cmn-run", MFD_CLOEXEC);
    if (!argv || q->output < 0) {
        cmn_run_fail("%s cannot be asked: %s", h->name, strerror(errno));
        free(argv);
        return -1;
    }
    snprintf(place, sizeof place, "%s:1", h->name);
    argv[0] = "mpiexec";
    memcpy(argv + 1, mpi_words, (size_t)n * sizeof *argv);
    argv[n + 1] = "-host";
    argv[n + 2] = place;
    argv[n + 3] = "-n";
    argv[n + 4] = "1";
    argv[n + 5] = "true";
    q->pid = cmn_process_start(argv, q->output, q->output);
    free(argv);
    return q->pid < 0 ? -1 : 0;
}

/* The first line that is neither empty nor part of a frame, as the reason. */
static void read_why(const struct question *q, struct cmn_host *h)
{
    char text[4096], *rest = text, *line;
    ssize_t n = pread(q->output, text, sizeof text - 1, 0);

    text[n < 0 ? 0 : n] = '\0';
    snprintf(h->why, sizeof h->why, "mpiexec starts nothing there");
    while ((line = strsep(&rest, "\n"))) {
        if (line[strspn(line, "- \t\r")]) {
            snprintf(h->why, sizeof h->why, "%.*s", CMN_HOST_WHY - 1, line);
            return;
        }
    }
}

static void end(struct question *q)
{
    if (q->pid > 0) {
        cmn_process_kill(q->pid);
    }
    if (q->output >= 0) {
        close(q->output);
    }
    q->pid = 0;
    q->output = -1;
}

/* Takes the answers that have come; returns how many are missing. */
static int collect(struct question *q, struct cmn_hosts *h)
{
    int missing = 0;

    for (int i = 0; i < h->count; i++) {
        int status;
        if (q[i].pid <= 0) {
            continue;
        }
        if (!cmn_process_ended(q[i].pid, &status)) {
            missing++;
            continue;
        }
        q[i].pid = 0;
        h->host[i].gone = status != 0;
        if (status) {
            read_why(&q[i], &h->host[i]);
        }
    }
    return missing;
}

int cmn_hosts_ask(struct cmn_hosts *h, char *const *mpi_words)
{
    struct question *q = calloc((size_t)h->count + 1, sizeof *q);
    double until = seconds() + CMN_ASK_SECONDS;
    int result = q ? 0 : cmn_run_fail("out of memory");

    for (int i = 0; q && i < h->count; i++) {
        q[i].output = -1;
    }
    for (int i = 0; !result && i < h->count; i++) {
        h->host[i].gone = 1;
        snprintf(h->host[i].why, sizeof h->host[i].why, "no answer within %d s", CMN_ASK_SECONDS);
        result = start(&q[i], &h->host[i], mpi_words);
    }
    while (!result && collect(q, h) && seconds() < until) {
        cmn_trace_events_wait_alone(-1, 200);
        result = cmn_trace_events_stop() ? -1 : 0;
    }
    for (int i = 0; q && i < h->count; i++) {
        end(&q[i]);
    }
    free(q);
    cmn_process_rest(1);
    return result;
}
