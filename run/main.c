/* cmn-run: starts a training under mpiexec, and again from its last checkpoint when a rank or a machine is lost. How it
 * decides is in docs/cmn-run.md; it runs nothing but mpiexec, `true` on the machines, and what it is given. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "command.h"
#include "events.h"
#include "job.h"
#include "options.h"
#include "say.h"

enum {
    LOST_STATUS = 75,   /* the same as the ranks' own: try again later */
    LONGEST_PAUSE = 60, /* seconds */
    SAME_CRASHES = 2,   /* in a row, from the same checkpoint */
    WORDS = 4096
};

struct run {
    struct cmn_run_options options;
    struct cmn_command command;
    int tries;
    long failed;  /* tries since the last progress */
    long crashes; /* of them, the last ones that ended by the same signal of the program's own */
    int crash;    /* that signal */
    long from;    /* where the last try began */
    int kept;     /* the command has made a checkpoint of its own: -clear is done */
    int ranks;    /* of the try before */
};

/* ---- machines ---- */

static void tell_gone(const struct cmn_hosts *h, const char *what)
{
    for (int i = 0; i < h->count; i++) {
        if (h->host[i].gone) {
            cmn_journal_say("gone", "%s:%d %s (%s)", h->host[i].name, h->host[i].slots, what,
                            h->host[i].why);
        }
    }
}

/* Milliseconds, of a clock that nobody sets. */
static long long now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

static void sleep_a_second(void)
{
    long long begin = now();

    do {
        cmn_trace_events_wait_alone(-1, 100);
    } while (!cmn_trace_events_stop() && now() - begin < 1000);
}

/* 0 when there are machines to go on with; 1 when, after a try, they could not be asked from here; -1 when there are none, or a signal asks to
 * stop. */
static int find_machines(struct run *r)
{
    struct cmn_hosts *h = &r->options.hosts;
    long long until = now() + 1000LL * r->options.wait;
    int told = 0;

    if (!h->count) {
        return 0;
    }
    for (;;) {
        if (cmn_hosts_ask(h, r->options.mpi)) {
            return r->tries && !cmn_trace_events_stop() ? 1 : -1;
        }
        if (!cmn_hosts_gone(h) || now() >= until) {
            break;
        }
        if (!told++) {
            tell_gone(h, "does not answer: waiting for it");
        }
        sleep_a_second();
        if (cmn_trace_events_stop()) {
            return -1;
        }
    }
    if (told && !cmn_hosts_gone(h)) {
        cmn_journal_say("back", "all machines answer");
    }
    /* A machine that has never been there is a mistake in the command. */
    tell_gone(h, r->tries ? "does not answer: going on without it" : "does not answer");
    if ((!r->tries && cmn_hosts_gone(h)) || !cmn_hosts_ranks(h)) {
        cmn_journal_say("give-up", "%s",
                        r->tries ? "no machine is left: -wait SECONDS waits for them"
                                 : "at the first start all machines must be there: take it out of "
                                   "the list, or give -wait SECONDS");
        return -1;
    }
    return 0;
}

/* ---- one try ---- */

/* mpiexec says which rank has died, and passes on what the others say of it, only when it has slept between its SIGTERM and SIGKILL for
 * the others, twice. What is to be saved has its time at SIGUSR1 (job.c). And it looks whether other machines are
 * still there only after two hours, if nobody says when. */
static const struct {
    int machines;     /* with so many of them, or more */
    const char *part; /* unless this is among the words of -mpi */
    char *name, *value;
} given[] = {
    {0, "sigkill_timeout", "odls_base_sigkill_timeout", "0"},
    {2, "oob_tcp_keepalive", "oob_tcp_keepalive_time", "5"},
    {2, "oob_tcp_keepalive", "oob_tcp_keepalive_intvl", "1"},
    {2, "oob_tcp_keepalive", "oob_tcp_keepalive_probes", "5"},
};

static int has_part(char *const *word, const char *part)
{
    while (*word && !strstr(*word, part)) {
        word++;
    }
    return *word != NULL;
}

static char **words_of(struct run *r, char *hosts, char *ranks)
{
    const struct cmn_run_options *o = &r->options;
    char **command = r->kept ? r->command.going_on : r->command.word;
    int n = 0, mpi = 0, words = 0;
    char **argv;

    while (o->mpi[mpi]) {
        mpi++;
    }
    while (command[words]) {
        words++;
    }
    argv = calloc((size_t)(mpi + words) + 24, sizeof *argv);
    if (!argv) {
        cmn_run_fail("out of memory");
        return NULL;
    }
    argv[n++] = "mpiexec";
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++) {
        if (o->hosts.count >= given[i].machines && !has_part(o->mpi, given[i].part)) {
            argv[n++] = "--mca";
            argv[n++] = given[i].name;
            argv[n++] = given[i].value;
        }
    }
    for (int i = 0; i < mpi; i++) {
        argv[n++] = o->mpi[i];
    }
    if (hosts[0]) {
        argv[n++] = "-host";
        argv[n++] = hosts;
    }
    argv[n++] = "-n";
    argv[n++] = ranks;
    for (int i = 0; i < words; i++) {
        argv[n++] = command[i];
    }
    return argv;
}

static void tell_ranks(struct run *r, int ranks)
{
    if (r->tries && ranks != r->ranks) {
        cmn_journal_say("ranks", "%d ranks from here on, %d before: %s", ranks, r->ranks,
                        r->command.global
                            ? "cmn_batch=global keeps the batch and the result"
                            : "with cmn_batch=per_rank a step has another number of images, and "
                              "the result is another one (cmn_batch=global keeps it)");
    }
    r->ranks = ranks;
}

/* What this machine lacks, such as room for a process, may be there again in a moment: once there was a try, it is a loss as others are. */
static int not_started(struct cmn_host_info *facts, struct cmn_diagnosis *v)
{
    cmn_host_info_clear(facts);
    *v = (struct cmn_diagnosis){CMN_LOST, LOST_STATUS, "another try could not be started"};
    cmn_journal("loss", "%s", v->what);
    return 0;
}

static int one_try(struct run *r, struct cmn_host_info *facts, struct cmn_diagnosis *v)
{
    const size_t room = (size_t)r->options.hosts.count * (CMN_HOST_NAME + 16) + 1;
    char *hosts = calloc(room, 1), ranks[32], text[WORDS];
    int count = r->options.hosts.count ? cmn_hosts_ranks(&r->options.hosts) : (int)r->options.ranks;
    struct cmn_seen before = cmn_command_look(&r->command), after;
    char **argv;
    int status = 0, result;

    if (!hosts) {
        return cmn_run_fail("out of memory");
    }
    cmn_hosts_print(&r->options.hosts, hosts, room);
    snprintf(ranks, sizeof ranks, "%d", count);
    tell_ranks(r, count);
    argv = words_of(r, hosts, ranks);
    if (!argv) {
        free(hosts);
        return -1;
    }
    r->tries++;
    cmn_quote(text, sizeof text, argv);
    cmn_journal("start", "try %d, %d rank%s: %s", r->tries, count, count == 1 ? "" : "s", text);
    result = cmn_job_run(argv, facts, &status);
    free(argv);
    free(hosts);
    if (result) {
        return r->tries > 1 ? not_started(facts, v) : -1;
    }
    after = cmn_command_look(&r->command);
    if (after.iteration >= 0 && memcmp(&after.time, &before.time, sizeof after.time)) {
        facts->kept = 1;
    }
    *v = cmn_verdict(facts, status, cmn_trace_events_stop(), r->tries > 1);
    cmn_journal(v->end == CMN_LOST || v->end == CMN_CRASHED ? "loss" : "end", "status %d: %s",
                v->status, v->what);
    return 0;
}

/* ---- whether to go on ---- */

/* A try that has made a checkpoint, or began from a later one than the try before, was worth it. */
static void count(struct run *r, const struct cmn_host_info *facts, const struct cmn_diagnosis *v)
{
    int progress = facts->kept || facts->from > r->from;

    r->failed = progress ? 1 : r->failed + 1;
    r->crashes = v->end != CMN_CRASHED                              ? 0
                 : progress || r->crash != v->status || !r->crashes ? 1
                                                                    : r->crashes + 1;
    r->crash = v->status;
    r->from = facts->from > r->from ? facts->from : r->from;
    r->kept |= facts->kept || !r->command.clear;
}

/* Returns the status to end with, or -1: another try. */
static int decide(struct run *r, const struct cmn_host_info *facts, const struct cmn_diagnosis *v)
{
    long pause = 1;

    if (v->end == CMN_DONE || v->end == CMN_WRONG) {
        return v->status;
    }
    if (v->end == CMN_STOPPED) {
        /* Whom mpiexec had to kill, or our own signal, says nothing; a rank that could not save does. */
        return cmn_trace_events_stop() &&
                       (v->status >= 128 || facts->signal == SIGUSR1 || !facts->word[0])
                   ? 128 + cmn_trace_events_stop()
                   : v->status;
    }
    count(r, facts, v);
    fprintf(stderr, "cmn-run: %s\n", v->what);
    if (r->crashes == SAME_CRASHES && r->options.retries) {
        cmn_journal_say("give-up",
                        "%d times in a row the same end, with no new checkpoint "
                        "between them: another try would end that way, too",
                        SAME_CRASHES);
        return v->status;
    }
    if (r->failed > r->options.retries) {
        cmn_journal_say("give-up", "%ld tr%s without a new checkpoint (-retries %ld)", r->failed,
                        r->failed == 1 ? "y" : "ies", r->options.retries);
        return LOST_STATUS;
    }
    for (long i = 1; i < r->failed && pause < LONGEST_PAUSE; i++) {
        pause *= 2;
    }
    pause = pause < LONGEST_PAUSE ? pause : LONGEST_PAUSE;
    cmn_journal_say("pause", "starting again in %ld s (retry %ld of %ld)", pause, r->failed,
                    r->options.retries);
    while (pause-- > 0 && !cmn_trace_events_stop()) {
        sleep_a_second();
    }
    return -1;
}

static int stopped_between(void)
{
    cmn_journal_say("stop", "signal %d (%s), while nothing ran", cmn_trace_events_stop(),
                    strsignal(cmn_trace_events_stop()));
    return 128 + cmn_trace_events_stop();
}

static int run(struct run *r)
{
    struct cmn_host_info facts;
    struct cmn_diagnosis verdict;
    int status = -1;

    while (status < 0) {
        int found = cmn_trace_events_stop() ? -1 : find_machines(r);
        if (found < 0) {
            return cmn_trace_events_stop() ? stopped_between() : r->tries ? LOST_STATUS : 1;
        }
        if (found ? not_started(&facts, &verdict) : one_try(r, &facts, &verdict)) {
            cmn_journal("give-up", "it cannot be started");
            return 1;
        }
        status = decide(r, &facts, &verdict);
    }
    cmn_journal("done", "%d tr%s, status %d", r->tries, r->tries == 1 ? "y" : "ies", status);
    return status;
}

/* Another try without a checkpoint would begin anew: nobody wants that by accident. */
static int check(const struct run *r)
{
    if (!r->command.cmn) {
        return cmn_run_fail(
            "-cmn is missing in the command: its processes would not train together");
    }
    if (!r->command.checkpoint && r->options.retries) {
        return cmn_run_fail(
            "the command makes no checkpoints, so nothing would be kept between "
            "tries: give it -cmn_checkpoint ITERATIONS, or -retries 0 before the --");
    }
    return 0;
}

int main(int argc, char **argv)
{
    static struct run r = {.from = -1};
    int status = cmn_run_options_read(&r.options, argv);

    (void)argc;
    if (!status && (cmn_command_read(&r.command, r.options.word) || check(&r) ||
                    cmn_journal_open(r.options.journal) || cmn_trace_events_open())) {
        status = -1;
    }
    status = status ? status < 0 : run(&r);
    cmn_command_free(&r.command);
    cmn_run_options_free(&r.options);
    return status;
}
