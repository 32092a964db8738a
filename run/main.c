/* cmn-run starts a command under mpiexec, and starts a training again from its last checkpoint when
 * a rank or a machine fails. docs/use/cmn-run.md says how it decides. It runs mpiexec, `sleep` on
 * the machines, and the command that it is given. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "job.h"
#include "lookout.h"
#include "messages.h"
#include "mpiexec.h"
#include "options.h"
#include "process.h"

enum {
    PAUSE_MAX = 60,   /* seconds */
    SHORT = 10,       /* seconds; after a longer attempt there is no pause */
    SAME_CRASHES = 2, /* in a row, from the same checkpoint */
    RETRIES = 3       /* by default, where there are checkpoints */
};

struct run {
    struct cmn_run_options options;
    struct cmn_command command;
    int attempts;
    long failed;  /* attempts since the last progress */
    long crashes; /* of them, the last ones that ended by the same crash */
    int crash;    /* the status of that crash */
    long from;    /* iteration at which the last attempt began */
    int ranks;    /* ranks of the attempt before */
    int moves;    /* that attempt ended to continue on machines that have just answered */
    double began; /* when the last attempt began */
};

/* ---- machines ---- */

/* Returns 0 when there are machines; 1 when, after an attempt, they could not be asked from here;
 * -1 when there are none, or a signal asks to stop. */
static int find_machines(struct run *r)
{
    struct cmn_hosts *h = &r->options.hosts;
    double until = cmn_clock() + (double)r->options.wait, read_next = 0;
    enum cmn_gone gone;
    int reported = 0;

    if (!h->count || r->moves) {
        return 0;
    }
    for (;;) {
        if (r->attempts && cmn_clock() >= read_next) {
            cmn_lookout_read(&r->options);
            read_next = cmn_clock() + (double)r->options.interval;
        }
        if (cmn_lookout_ask()) {
            return r->attempts && !cmn_stop_signal() ? 1 : -1;
        }
        gone = cmn_hosts_gone(h);
        if (!gone || cmn_clock() >= until || (!r->attempts && gone == CMN_HOST_WRONG)) {
            break;
        }
        if (!reported++) {
            cmn_hosts_report(h, "waiting for it", 0);
        }
        if (cmn_wait_until(cmn_stop_requested, NULL, 1)) {
            return -1;
        }
    }
    if (reported && !gone) {
        cmn_journal_say("back", "all machines answer");
    }
    /* A machine that has never answered is a mistake in the command, or has to be set up. */
    if (gone && !r->attempts) {
        cmn_hosts_report(h,
                         "at the first start all machines must be there: take it out of the list, "
                         "or give -wait SECONDS",
                         0);
        cmn_journal("give-up", "at the first start all machines must be there");
        return -1;
    }
    cmn_hosts_report(h, "continuing without it", 0);
    if (!cmn_hosts_ranks(h)) {
        cmn_journal_say("give-up", "no machine is left: -wait SECONDS waits for them");
        return -1;
    }
    return 0;
}

/* ---- one attempt ---- */

static void report_ranks(struct run *r, int ranks)
{
    if (r->attempts && ranks != r->ranks) {
        cmn_journal_say("ranks", "%d rank%s from here on, %d before: %s", ranks,
                        ranks == 1 ? "" : "s", r->ranks,
                        r->command.global
                            ? "cmn_batch=global keeps the batch and the result"
                            : "with cmn_batch=per_rank a step has another number of images, and "
                              "the result is another one (cmn_batch=global keeps it)");
    }
    r->ranks = ranks;
}

static void journal_start(const struct run *r, char *const *argv)
{
    char ranks[32] = "", *text = cmn_mpiexec_text(argv);

    if (r->ranks) {
        snprintf(ranks, sizeof ranks, ", %d rank%s", r->ranks, r->ranks == 1 ? "" : "s");
    }
    cmn_journal("start", "attempt %d%s: %s", r->attempts, ranks, text);
    free(text);
}

/* Returns what a machine that comes must be able to run before ranks do. */
static char *const *check_of(const struct cmn_command *c)
{
    static char *check[] = {NULL, "cmn", "check", NULL}, *sleep[] = {"sleep", "1", NULL};

    check[0] = c->word[0];
    return c->is_darknet ? check : sleep;
}

/* A training that makes checkpoints moves with its machines. */
static int can_move(const struct run *r)
{
    return r->options.hosts.count && r->command.checkpoint && r->options.retries;
}

/* Leaves the machines on which a rank was asked to end: they are not used until they have been
 * away. Where no machine would be left, or none is known by that name, it was a request to stop. */
static void leave(struct run *r, const struct cmn_observed *o, struct cmn_diagnosis *d)
{
    struct cmn_hosts *hosts = &r->options.hosts;
    char list[sizeof o->leaving + sizeof o->host + 1], *rest = list, *name;
    const char *unknown = NULL;
    int found = o->moves;

    if (d->outcome != CMN_MOVES) {
        return;
    }
    snprintf(list, sizeof list, "%s %s", o->leaving, o->signal == SIGTERM ? o->host : "");
    while ((name = strsep(&rest, " "))) {
        struct cmn_host *h = name[0] ? cmn_hosts_find(hosts, name) : NULL;
        if (h) {
            h->left = found = 1;
        } else if (name[0]) {
            unknown = name;
        }
    }
    r->moves = found && can_move(r) && cmn_hosts_ranks(hosts);
    if (!r->moves) {
        d->outcome = CMN_STOPPED;
        if (unknown && !found && can_move(r)) {
            snprintf(d->what, sizeof d->what,
                     "%s was asked to end, and has another name in the list, or none: this ends "
                     "the job",
                     unknown);
        }
        return;
    }
    for (int i = 0; i < hosts->count; i++) {
        const struct cmn_host *h = &hosts->host[i];
        if (h->left && h->runs) {
            cmn_journal_say("gone", "%s:%d was asked to end: continuing without it", h->name,
                            h->slots);
        }
    }
    snprintf(d->what, sizeof d->what, "the ranks have ended, to continue on other machines");
}

/* A machine that has come counts as good once an attempt with it has written a checkpoint. Until
 * then it is the one that fails, whatever the ranks say. */
static void count_failures(struct run *r, const struct cmn_observed *o, struct cmn_diagnosis *d)
{
    int failed = d->outcome == CMN_FAILED || d->outcome == CMN_CRASHED || d->outcome == CMN_WRONG;

    for (int i = 0; i < r->options.hosts.count; i++) {
        struct cmn_host *h = &r->options.hosts.host[i];
        if (h->failures == CMN_GOOD || !h->runs) {
            continue;
        }
        if (o->checkpoint) {
            h->failures = CMN_GOOD;
        } else if (failed) {
            d->outcome = CMN_FAILED;
            h->failures++;
        }
        if (h->failures == CMN_FAILURES) {
            cmn_journal_say("gone",
                            "%s:%d has come, and %d attempts with it failed: continuing "
                            "without it",
                            h->name, h->slots, CMN_FAILURES);
        }
    }
}

/* Counts an attempt that could not be started as a failure. This machine may have lacked something
 * for a moment, such as room for a process. */
static void not_started(struct cmn_observed *o, struct cmn_diagnosis *d)
{
    cmn_observe_nothing(o);
    o->not_started = 1;
    *d = (struct cmn_diagnosis){CMN_FAILED, CMN_FAILED_STATUS,
                                "another attempt could not be started"};
    cmn_journal("failure", "%s", d->what);
}

/* Returns 0, or -1 if the first attempt could not be started. */
static int attempt(struct run *r, struct cmn_observed *o, struct cmn_diagnosis *d)
{
    const struct cmn_hosts *h = &r->options.hosts;
    char *hosts = cmn_hosts_text(h), number[32];
    char **argv;
    int status = 0, again, result;

    report_ranks(r, h->count ? cmn_hosts_ranks(h) : (int)r->options.ranks);
    argv = cmn_mpiexec_words(&r->options, hosts, r->ranks, r->command.word);
    r->attempts++;
    r->moves = 0;
    snprintf(number, sizeof number, "%d", r->attempts);
    setenv("OMPI_CMN_ATTEMPT", number, 1); /* this one may use what an older attempt has locked */
    journal_start(r, argv);
    r->began = cmn_clock();
    if (can_move(r)) {
        cmn_lookout_begin(check_of(&r->command));
    }
    result = cmn_job_run(argv, o, &status);
    free(hosts);
    if (result) {
        if (r->attempts == 1) {
            return -1;
        }
        not_started(o, d);
        return 0;
    }
    if (o->reached[0]) {
        setenv("OMPI_CMN_REACHED", o->reached, 1);
    }
    /* Slurm sets this variable in a job that it has queued again: what ran before may still be
     * ending. */
    again = r->attempts > 1 || getenv("SLURM_RESTART_COUNT");
    *d = cmn_diagnose(o, status, cmn_stop_signal(), again);
    count_failures(r, o, d);
    leave(r, o, d);
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
}

static void wait_for_next(const struct run *r)
{
    long pause = 1;

    if (r->failed == 1 && cmn_clock() - r->began > SHORT) {
        cmn_journal("pause", "starting again (retry 1 of %ld)", r->options.retries);
        return;
    }
    for (long i = 1; i < r->failed && pause < PAUSE_MAX; i++) {
        pause *= 2;
    }
    pause = pause < PAUSE_MAX ? pause : PAUSE_MAX;
    cmn_journal_say("pause", "starting again in %ld s (retry %ld of %ld)", pause, r->failed,
                    r->options.retries);
    cmn_wait_until(cmn_stop_requested, NULL, (double)pause);
}

/* Returns the status to end with, or -1 for another attempt. */
static int decide(struct run *r, const struct cmn_observed *o, const struct cmn_diagnosis *d)
{
    if (d->outcome == CMN_WRONG &&
        (d->status == CMN_UNREAD ||
         (!o->began && (o->no_program || o->other_launcher || o->unreached)))) {
        cmn_run_fail("%s", d->what); /* no rank could say it */
    }
    if (d->outcome == CMN_DONE || d->outcome == CMN_WRONG) {
        return d->status;
    }
    if (r->moves) {
        r->failed = 0;
        return -1;
    }
    if (d->outcome == CMN_STOPPED) {
        if (!cmn_stop_signal() || cmn_observed_unsaved(o)) {
            cmn_run_fail("%s", d->what);
            return d->status;
        }
        /* A rank that mpiexec had to kill, or that died of our signal, says nothing; a rank that
         * could not save does. */
        return d->status >= 128 || o->signal == SIGUSR1 || !o->fatal[0] ? 128 + cmn_stop_signal()
                                                                        : d->status;
    }
    count(r, o, d);
    cmn_run_fail("%s", d->what);
    if (r->command.clear && !getenv("OMPI_CMN_REACHED") && cmn_observed_blind(o) &&
        r->options.retries) {
        cmn_journal_say(
            "give-up",
            "no rank has reported to cmn-run (does OMPI_CMN_EVENT_TOKEN reach them?), so "
            "it may have written checkpoints, and -clear would begin anew: start it "
            "again without -clear, or with it");
        return CMN_FAILED_STATUS;
    }
    if (r->crashes == SAME_CRASHES && r->options.retries) {
        cmn_journal_say("give-up",
                        "%d times in a row the same end, with no new checkpoint "
                        "between them: another attempt would end that way, too",
                        SAME_CRASHES);
        return d->status;
    }
    if (!r->options.retries) {
        cmn_journal("give-up", "no further attempt (-retries 0)");
        return CMN_FAILED_STATUS;
    }
    if (r->failed > r->options.retries) {
        cmn_journal_say("give-up", "%ld attempt%s without a new checkpoint (-retries %ld)",
                        r->failed, r->failed == 1 ? "" : "s", r->options.retries);
        return CMN_FAILED_STATUS;
    }
    wait_for_next(r);
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
            return cmn_stop_signal() ? stopped_between() : r->attempts ? CMN_FAILED_STATUS : 1;
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

/* ssh would ask a terminal for a password, or whether to trust a machine: behind mpiexec nobody
 * sees that, or it stops ssh for ever. So ssh asks a program that has no answer. */
static void have_ssh_ask_nobody(void)
{
    if (!getenv("SSH_ASKPASS_REQUIRE")) {
        setenv("SSH_ASKPASS_REQUIRE", "force", 1);
        setenv("SSH_ASKPASS", "false", 1);
    }
}

/* Refuses what is a mistake. An attempt without a checkpoint would begin anew, which nobody wants
 * by accident. */
static void check(const struct run *r)
{
    const char *program = r->command.word[0], *requeued = getenv("SLURM_RESTART_COUNT");

    if (r->command.alone) {
        cmn_run_fatal("-cmn is missing in the command: each process would train by itself; write "
                      "-cmn at its end");
    }
    if (r->options.retries > 0 && !r->command.checkpoint) {
        cmn_run_fatal("-retries %ld: the command makes no checkpoints, so nothing would be kept "
                      "between attempts: give it -cmn_checkpoint ITERATIONS",
                      r->options.retries);
    }
    if (r->command.clear && requeued && atol(requeued) > 0) {
        cmn_run_fatal(
            "-clear in a job that Slurm has requeued (SLURM_RESTART_COUNT=%s) would throw "
            "away what its earlier start has reached: submit it without -clear, or write "
            "$([ -n \"$SLURM_RESTART_COUNT\" ] || echo -clear) in its script",
            requeued);
    }
    /* -mpi may say where else it lies. */
    if (cmn_mpiexec_is_here(&r->options) && !r->options.mpi[0] &&
        !cmn_command_is_program(program)) {
        cmn_run_fatal(
            strchr(program, '/')
                ? "%s: no such file here, or it may not be executed"
                : "%s: no program of this name in PATH: write its path, as in bin/darknet",
            program);
    }
}

/* Chooses ranks and retries where no option says them, and says so. */
static void choose(struct run *r)
{
    struct cmn_run_options *o = &r->options;
    int here = cmn_mpiexec_is_here(o), cores = here ? cmn_mpiexec_cores() : 0;

    if (here && !o->ranks) {
        o->ranks = cores;
        cmn_journal_say("note",
                        "%d rank%s, as this machine has so many cores (-n N: another number)",
                        cores, cores == 1 ? "" : "s");
    } else if (here && o->ranks > cores) {
        cmn_journal_say("note", "%ld ranks share the %d core%s of this machine", o->ranks, cores,
                        cores == 1 ? "" : "s");
    }
    if (o->retries < 0) {
        o->retries = r->command.checkpoint ? RETRIES : 0;
        if (!o->retries && r->command.trains) {
            cmn_journal_say("note",
                            "this training makes no checkpoints, so a failure ends it (with "
                            "-cmn_checkpoint 500 it starts again from the last one)");
        }
    }
    r->ranks = o->hosts.count ? cmn_hosts_ranks(&o->hosts) : (int)o->ranks;
}

/* Prints the line of the first attempt for -dry-run, and ends. */
static _Noreturn void print_line(const struct run *r)
{
    char *hosts = cmn_hosts_text(&r->options.hosts);
    char *text = cmn_mpiexec_text(cmn_mpiexec_words(&r->options, hosts, r->ranks, r->command.word));

    puts(text);
    free(text);
    free(hosts);
    cmn_run_printed();
}

static int is_read_or_given_up(void *stop)
{
    return cmn_run_stderr_written(NULL) || cmn_stop_signal() != *(int *)stop;
}

/* Waits until the standard error is read; a signal ends the wait. */
static void await_reader(void)
{
    enum { AFTER_A_STOP = 2, A_YEAR = 365 * 86400 }; /* seconds */
    int stop = cmn_stop_signal();

    cmn_wait_until(is_read_or_given_up, &stop, stop ? AFTER_A_STOP : A_YEAR);
}

/* Opens standard descriptors that are closed: the next file that is opened would get them. */
static void open_standard_descriptors(void)
{
    int fd;

    do {
        fd = open("/dev/null", O_RDWR);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    close(fd);
}

int main(int argc, char **argv)
{
    static struct run r = {.from = -1};

    open_standard_descriptors();
    atexit(await_reader);
    cmn_run_options_read(&r.options, argc, argv);
    cmn_command_read(&r.command, r.options.command);
    check(&r);
    if (!r.options.dry_run) {
        cmn_journal_open(r.options.journal, r.options.journal_given);
    }
    cmn_signals_open();
    if (cmn_lookout_read(&r.options)) {
        return 1;
    }
    choose(&r);
    if (r.options.dry_run) {
        print_line(&r);
    }
    cmn_event_open();
    have_ssh_ask_nobody();
    return run(&r);
}
