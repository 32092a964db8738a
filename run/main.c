/* cmn-run: starts a training under mpiexec, and again from its last checkpoint when a rank or a
 * machine fails. docs/use/cmn-run.md says how it decides. It runs mpiexec, `sleep` on the machines, and
 * what it is given. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "job.h"
#include "messages.h"
#include "options.h"
#include "process.h"

enum {
    FAILED_STATUS = 75, /* as the ranks' own: another attempt may succeed */
    PAUSE_MAX = 60,     /* seconds */
    SAME_CRASHES = 2    /* in a row, from the same checkpoint */
};

struct run {
    struct cmn_run_options options;
    struct cmn_command command;
    int attempts;
    long failed;     /* attempts since the last progress */
    long crashes;    /* of them, the last ones that ended by the same signal of the program's own */
    int crash;       /* that status */
    long from;       /* iteration at which the last attempt began */
    int has_cleared; /* the command has written a checkpoint of its own: -clear is done */
    int ranks;       /* of the attempt before */
};

/* ---- machines ---- */

static void report_gone(const struct cmn_hosts *h, const char *what)
{
    for (int i = 0; i < h->count; i++) {
        if (h->host[i].gone) {
            cmn_journal_say("gone", "%s:%d %s (%s)", h->host[i].name, h->host[i].slots, what,
                            h->host[i].why);
        }
    }
}

/* A machine that has never answered is a mistake in the command, or has to be set up. */
static int refuse_gone(const struct cmn_hosts *h)
{
    for (int i = 0; i < h->count; i++) {
        const struct cmn_host *host = &h->host[i];
        if (host->gone && host->wrong) {
            cmn_journal_say("gone", "%s: %s", host->name, host->why);
        } else if (host->gone) {
            cmn_journal_say("gone",
                            "%s:%d does not answer (%s): at the first start all machines must be "
                            "there: take it out of the list, or give -wait SECONDS",
                            host->name, host->slots, host->why);
        }
    }
    cmn_journal("give-up", "at the first start all machines must be there");
    return -1;
}

/* 0 when there are machines; 1 when, after an attempt, they could not be asked from here; -1 when
 * there are none, or a signal asks to stop. */
static int find_machines(struct run *r)
{
    struct cmn_hosts *h = &r->options.hosts;
    double until = cmn_clock() + (double)r->options.wait;
    int reported = 0;

    if (!h->count) {
        return 0;
    }
    for (;;) {
        if (cmn_hosts_probe(h, r->options.mpi)) {
            return r->attempts && !cmn_stop_signal() ? 1 : -1;
        }
        if (!cmn_hosts_gone(h) || cmn_clock() >= until || (!r->attempts && cmn_hosts_wrong(h))) {
            break;
        }
        if (!reported++) {
            report_gone(h, "does not answer: waiting for it");
        }
        if (cmn_wait_until(cmn_stop_requested, NULL, 1)) {
            return -1;
        }
    }
    if (reported && !cmn_hosts_gone(h)) {
        cmn_journal_say("back", "all machines answer");
    }
    if (!r->attempts && cmn_hosts_gone(h)) {
        return refuse_gone(h);
    }
    report_gone(h, "does not answer: continuing without it");
    if (!cmn_hosts_ranks(h)) {
        cmn_journal_say("give-up", "no machine is left: -wait SECONDS waits for them");
        return -1;
    }
    return 0;
}

/* ---- one attempt ---- */

/* By default mpiexec says which rank has died, and passes on what the others say of it, only after
 * it has slept twice between its SIGTERM and SIGKILL for the others; what is to be saved has its
 * time at SIGUSR1 (job.c). And it looks whether other machines are still there only after two
 * hours. */
static const struct {
    int machines;     /* with so many of them, or more */
    const char *part; /* unless this is among the words of -mpi */
    char *word[4];
} given[] = {
    {0, "sigkill_timeout", {"--mca", "odls_base_sigkill_timeout", "0"}},
    {2, "oob_tcp_keepalive", {"--mca", "oob_tcp_keepalive_time", "5"}},
    {2, "oob_tcp_keepalive", {"--mca", "oob_tcp_keepalive_intvl", "1"}},
    {2, "oob_tcp_keepalive", {"--mca", "oob_tcp_keepalive_probes", "5"}},
};

/* Where mpiexec finds them itself, Slurm says how many it will find. */
static int machines(const struct cmn_hosts *h)
{
    const char *nodes = getenv("SLURM_JOB_NUM_NODES");

    return h->count || !nodes ? h->count : atoi(nodes);
}

static int has_part(char *const *word, const char *part)
{
    while (*word && !strstr(*word, part)) {
        word++;
    }
    return *word != NULL;
}

static void append(char ***list, size_t *n, char *const *words)
{
    for (; *words; words++) {
        *list = cmn_run_realloc(*list, *n + 2, sizeof **list);
        (*list)[(*n)++] = *words;
        (*list)[*n] = NULL;
    }
}

static char **mpiexec_words(struct run *r, char *hosts, char *ranks)
{
    const struct cmn_run_options *o = &r->options;
    char **argv = NULL;
    size_t n = 0;

    append(&argv, &n, (char *[]){"mpiexec", NULL});
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++) {
        if (machines(&o->hosts) >= given[i].machines && !has_part(o->mpi, given[i].part)) {
            append(&argv, &n, given[i].word);
        }
    }
    append(&argv, &n, o->mpi);
    if (hosts[0]) {
        append(&argv, &n, (char *[]){"-host", hosts, NULL});
    }
    append(&argv, &n, (char *[]){"-n", ranks, NULL});
    append(&argv, &n, r->has_cleared ? r->command.without_clear : r->command.word);
    return argv;
}

static void report_ranks(struct run *r, int ranks)
{
    if (r->attempts && ranks != r->ranks) {
        cmn_journal_say("ranks", "%d ranks from here on, %d before: %s", ranks, r->ranks,
                        r->command.global
                            ? "cmn_batch=global keeps the batch and the result"
                            : "with cmn_batch=per_rank a step has another number of images, and "
                              "the result is another one (cmn_batch=global keeps it)");
    }
    r->ranks = ranks;
}

/* Appends the command to the journal as a shell takes it. */
static void journal_start(const struct run *r, char *const *word)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%^";
    size_t bytes;
    char *text;
    FILE *to = open_memstream(&text, &bytes);

    for (int i = 0; to && word[i]; i++) {
        const char *quote = word[i][0] && !word[i][strspn(word[i], plain)] ? "" : "'";
        fprintf(to, " %s", quote);
        for (const char *c = word[i]; *c; c++) {
            fprintf(to, *c == '\'' ? "'\\''" : "%c", *c);
        }
        fputs(quote, to);
    }
    if (!to || fclose(to)) {
        cmn_run_fatal("out of memory");
    }
    cmn_journal("start", "attempt %d, %d rank%s:%s", r->attempts, r->ranks,
                r->ranks == 1 ? "" : "s", text);
    free(text);
}

/* What this machine lacks, such as room for a process, may be there again in a moment: after the
 * first attempt that is a failure as others are. */
static void not_started(struct cmn_observed *o, struct cmn_diagnosis *d)
{
    cmn_observe_nothing(o);
    o->not_started = 1;
    *d = (struct cmn_diagnosis){CMN_FAILED, FAILED_STATUS, "another attempt could not be started"};
    cmn_journal("failure", "%s", d->what);
}

/* 0, or -1: the first attempt could not be started. */
static int attempt(struct run *r, struct cmn_observed *o, struct cmn_diagnosis *d)
{
    const struct cmn_hosts *h = &r->options.hosts;
    char *hosts = cmn_hosts_text(h), ranks[32];
    struct cmn_checkpoints before = cmn_command_checkpoints(&r->command), after;
    char **argv;
    int status = 0, again, result;

    report_ranks(r, h->count ? cmn_hosts_ranks(h) : (int)r->options.ranks);
    snprintf(ranks, sizeof ranks, "%d", r->ranks);
    argv = mpiexec_words(r, hosts, ranks);
    r->attempts++;
    journal_start(r, argv);
    result = cmn_job_run(argv, o, &status);
    free(argv);
    free(hosts);
    if (result) {
        if (r->attempts == 1) {
            return -1;
        }
        not_started(o, d);
        return 0;
    }
    after = cmn_command_checkpoints(&r->command);
    if (after.iteration >= 0 && memcmp(&after.changed, &before.changed, sizeof after.changed)) {
        o->checkpoint = 1;
    }
    /* Slurm sets it where it has queued the job again: what ran before may still be ending. */
    again = r->attempts > 1 || getenv("SLURM_RESTART_COUNT");
    *d = cmn_diagnose(o, status, cmn_stop_signal(), again);
    cmn_journal(d->outcome == CMN_FAILED || d->outcome == CMN_CRASHED ? "failure" : "end",
                "status %d: %s", d->status, d->what);
    return 0;
}

/* ---- whether to start another one ---- */

/* An attempt that has written a checkpoint, or began from a later one than the attempt before, is
 * progress. */
static void count(struct run *r, const struct cmn_observed *o, const struct cmn_diagnosis *d)
{
    int progress = o->checkpoint || o->resumed_from > r->from;

    r->failed = progress ? 1 : r->failed + 1;
    r->crashes = d->outcome != CMN_CRASHED                          ? 0
                 : progress || r->crash != d->status || !r->crashes ? 1
                                                                    : r->crashes + 1;
    r->crash = d->status;
    r->from = o->resumed_from > r->from ? o->resumed_from : r->from;
    r->has_cleared |= o->checkpoint || !r->command.clear;
}

/* Returns the status to end with, or -1: another attempt. */
static int decide(struct run *r, const struct cmn_observed *o, const struct cmn_diagnosis *d)
{
    long pause = 1;

    if (d->outcome == CMN_WRONG && !o->began &&
        (o->no_program || o->other_launcher || o->unreached)) {
        cmn_run_fail("%s", d->what); /* no rank could say it */
    }
    if (d->outcome == CMN_DONE || d->outcome == CMN_WRONG) {
        return d->status;
    }
    if (d->outcome == CMN_STOPPED) {
        /* A rank that mpiexec had to kill, or that died of our signal, says nothing; one that could
         * not save does. */
        return cmn_stop_signal() && (d->status >= 128 || o->signal == SIGUSR1 || !o->fatal[0])
                   ? 128 + cmn_stop_signal()
                   : d->status;
    }
    count(r, o, d);
    cmn_run_fail("%s", d->what);
    if (r->command.clear && !r->has_cleared && cmn_observed_blind(o) && r->options.retries) {
        cmn_journal_say(
            "give-up",
            "no rank has reported to cmn-run (does OMPI_CMN_EVENT_TOKEN reach them?), so "
            "it may have written checkpoints, and -clear would begin anew: start it "
            "again without -clear, or with it");
        return FAILED_STATUS;
    }
    if (r->crashes == SAME_CRASHES && r->options.retries) {
        cmn_journal_say("give-up",
                        "%d times in a row the same end, with no new checkpoint "
                        "between them: another attempt would end that way, too",
                        SAME_CRASHES);
        return d->status;
    }
    if (r->failed > r->options.retries) {
        cmn_journal_say("give-up", "%ld attempt%s without a new checkpoint (-retries %ld)",
                        r->failed, r->failed == 1 ? "" : "s", r->options.retries);
        return FAILED_STATUS;
    }
    for (long i = 1; i < r->failed && pause < PAUSE_MAX; i++) {
        pause *= 2;
    }
    pause = pause < PAUSE_MAX ? pause : PAUSE_MAX;
    cmn_journal_say("pause", "starting again in %ld s (retry %ld of %ld)", pause, r->failed,
                    r->options.retries);
    cmn_wait_until(cmn_stop_requested, NULL, (double)pause);
    return -1;
}

static int stopped_between(void)
{
    cmn_journal_say("stop", "signal %d (%s), while nothing ran", cmn_stop_signal(),
                    strsignal(cmn_stop_signal()));
    return 128 + cmn_stop_signal();
}

static int run(struct run *r)
{
    struct cmn_observed observed;
    struct cmn_diagnosis diagnosis;
    int status = -1;

    while (status < 0) {
        int found = cmn_stop_signal() ? -1 : find_machines(r);
        if (found < 0) {
            return cmn_stop_signal() ? stopped_between() : r->attempts ? FAILED_STATUS : 1;
        }
        if (found) {
            not_started(&observed, &diagnosis);
        } else if (attempt(r, &observed, &diagnosis)) {
            cmn_journal("give-up", "it cannot be started");
            return 1;
        }
        status = decide(r, &observed, &diagnosis);
    }
    cmn_journal("done", "%d attempt%s, status %d", r->attempts, r->attempts == 1 ? "" : "s",
                status);
    return status;
}

/* ssh would ask a terminal for a password, or whether to trust a machine: from behind mpiexec that
 * is seen by nobody, or stops ssh for ever. So it asks a program that has no answer. */
static void have_ssh_ask_nobody(void)
{
    if (!getenv("SSH_ASKPASS_REQUIRE")) {
        setenv("SSH_ASKPASS_REQUIRE", "force", 1);
        setenv("SSH_ASKPASS", "false", 1);
    }
}

/* An attempt without a checkpoint would begin anew: nobody wants that by accident. */
static void check(const struct run *r)
{
    if (!r->command.cmn) {
        cmn_run_fatal("-cmn is missing in the command: its processes would not train together");
    }
    if (!r->command.checkpoint && r->options.retries) {
        cmn_run_fatal("the command makes no checkpoints, so nothing would be kept between "
                      "attempts: give it -cmn_checkpoint ITERATIONS, or -retries 0 before the --");
    }
}

int main(int argc, char **argv)
{
    static struct run r = {.from = -1};

    cmn_run_options_read(&r.options, argc, argv);
    cmn_command_read(&r.command, r.options.command);
    check(&r);
    cmn_journal_open(r.options.journal);
    cmn_event_open();
    have_ssh_ask_nobody();
    cmn_signals_open();
    return run(&r);
}
