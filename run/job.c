#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lookout.h"
#include "messages.h"
#include "process.h"

enum { LINE = 1024, BOXES = 4096, LINE_OF_BOX = 40 };

/* mpiexec's boxes are text between lines of dashes. BEGUN: the last line was one of dashes, and
 * whether mpiexec wrote it is not known yet. */
enum box { OUTSIDE, BEGUN, INSIDE };

/* All times are in seconds. */
static const double ONE_REQUEST =
    1; /* stop signals within it are one: a shell's Ctrl-C, and a batch system's, come twice */
static const double ASK_AGAIN = 2;
/* After a fatal message of a rank the job ends within ten seconds, or when mpiexec has noticed
 * which machine is gone. Where it has already written to that machine it waits until TCP gives up,
 * a quarter of an hour. */
static const double END = 20, KILL = 5;
/* mpiexec ends the ranks at once where one of them has ended. Where they still run so long after a
 * sentence as of mpiexec, a rank has printed it. */
static const double REFUTED = 6;
static const double REST = 2, LEFT = 10;

struct job {
    pid_t pid;
    struct cmn_observed *observed;
    struct cmn_event_filter filter;
    char line[LINE]; /* of text that is no event: for mpiexec's sentences */
    size_t n, shown; /* bytes of the line; of them those that are shown */
    enum box box;
    char boxes[BOXES];     /* boxes that say how ranks ended are held back */
    size_t held, complete; /* bytes of the boxes; of them those of whole ones */
    double stopped;        /* when that was last */
    double asked;          /* when SIGUSR1 was sent last */
    double fault;          /* when something went wrong first; 0: never */
};

/* ---- what the job writes ---- */

/* The first sign of a fault goes into the journal when it comes. */
static void note_fault(struct job *j, const char *text)
{
    const struct cmn_observed *o = j->observed;

    if (j->fault || !cmn_observed_fault(o)) {
        return;
    }
    if (o->signal) {
        cmn_journal("fault", "rank %d on %s ended by signal %d (%s)", o->rank, o->host, o->signal,
                    strsignal(o->signal));
    } else {
        cmn_journal("fault", "%s", text);
    }
    j->fault = cmn_clock();
}

/* Returns whether a box with this first line says how ranks ended. */
static int tells_an_end(const char *line)
{
    static const char *const sentence[] = {
        "Primary job ",
        " noticed that process rank ",
        " detected that one or more processes exited with ",
        "MPI_ABORT was invoked on rank ",
        " has lost communication with a remote daemon",
    };
    int found = 0;

    for (size_t i = 0; i < sizeof sentence / sizeof sentence[0]; i++) {
        found |= strstr(line, sentence[i]) != NULL;
    }
    return found;
}

/* Shows what is held back, except for its first bytes. */
static void release(struct job *j, size_t first)
{
    cmn_run_stderr_write(j->boxes + first, j->held - first);
    j->held = j->complete = first;
    j->box = OUTSIDE;
}

/* Holds the line back, as a part of a box. */
static void hold(struct job *j, char end)
{
    memcpy(j->boxes + j->held, j->line, j->n);
    j->held += j->n;
    if (end) {
        j->boxes[j->held++] = end;
    }
}

/* Shows the line, or holds it back: cmn-run itself says how the ranks ended in most cases, and
 * mpiexec's boxes about that are shown only where it does not. `end` follows the line, unless 0. */
static void end_line(struct job *j, char end)
{
    int edge;

    j->line[j->n] = '\0';
    edge = j->n >= LINE_OF_BOX && strspn(j->line, "-") == j->n;
    if (j->box == BEGUN && !tells_an_end(j->line)) {
        release(j, j->complete);
    }
    if (j->held + j->n + 1 > BOXES) {
        release(j, 0);
    }
    if (j->box == OUTSIDE && !edge) {
        cmn_run_stderr_write(j->line + j->shown, j->n - j->shown);
        cmn_run_stderr_write(&end, end != '\0');
    } else {
        hold(j, end);
        j->complete = j->box == INSIDE && edge ? j->held : j->complete;
        j->box = j->box == OUTSIDE ? BEGUN : edge ? OUTSIDE : INSIDE;
    }
    cmn_observe_mpiexec(j->observed, j->line);
    note_fault(j, j->line);
    j->n = j->shown = 0;
}

static void take_event(struct job *j, const struct cmn_event *e)
{
    if (!strcmp(e->kind, "checkpoint") && !j->observed->checkpoint) {
        cmn_journal("checkpoint", "the first of this attempt, iteration %ld", e->iteration);
    }
    cmn_observe_event(j->observed, e);
    if (!strcmp(e->kind, "alive") && j->fault && !j->observed->fatal[0] &&
        cmn_clock() - j->fault > REFUTED) {
        cmn_observe_life(j->observed);
        cmn_journal("alive", "the ranks continue: a rank may have printed that line");
        j->fault = 0;
    }
    if (!strcmp(e->kind, "alive") && !j->fault) {
        release(j, 0); /* the ranks continue: no box has told their end */
    }
    note_fault(j, j->observed->fatal);
    if (!strcmp(e->kind, "resume")) {
        cmn_journal("resume", "from %s, iteration %ld", e->text, e->iteration);
    } else if (!strcmp(e->kind, "warning")) {
        cmn_journal("warning", "%s", e->text);
    }
}

/* Open MPI 5 ends its boxes with a zero byte, which would hide the sentence behind it. A line that
 * is not complete is shown, too, unless it may become a line of dashes. */
static void take_text(struct job *j, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!text[i]) {
            continue;
        }
        if (text[i] == '\n' || text[i] == '\r' || j->n + 1 == LINE) {
            end_line(j, text[i]);
        } else {
            j->line[j->n++] = text[i];
        }
    }
    j->line[j->n] = '\0';
    if (j->box == OUTSIDE && strspn(j->line, "-") < j->n) {
        cmn_run_stderr_write(j->line + j->shown, j->n - j->shown);
        j->shown = j->n;
    }
}

/* Returns whether mpiexec --tag-output has put "[1,0]<stderr>:" before the event: then an empty
 * line of that rank is left. */
static int after_tag(const struct job *j)
{
    static const char tag[] = "<stderr>:";

    return j->n >= sizeof tag - 1 &&
           !memcmp(j->line + j->n - (sizeof tag - 1), tag, sizeof tag - 1);
}

/* Passes on what has come. Returns 0 at the end of the stream. */
static int pass_on(struct job *j, int fd)
{
    char in[4096], text[sizeof j->filter.json];
    ssize_t n = read(fd, in, sizeof in);
    struct cmn_event event;
    size_t length;

    if (n <= 0) {
        return n < 0 && (errno == EAGAIN || errno == EINTR);
    }
    for (ssize_t i = 0; i < n; i++) {
        if (cmn_event_filter(&j->filter, in[i], text, &length, &event) == CMN_AN_EVENT) {
            take_event(j, &event);
            if (after_tag(j)) {
                text[length++] = '\n';
            }
        }
        take_text(j, text, length);
    }
    return 1;
}

/* ---- signals ---- */

/* The first request sends SIGUSR1, which mpiexec forwards to every rank: they save and end, and
 * take the time that they need. After SIGTERM mpiexec kills them within seconds: that is for the
 * second request, and SIGKILL for the third. */
static void pass_stop(struct job *j)
{
    static const int with[] = {SIGUSR1, SIGTERM, SIGKILL};
    static const char *const what[] = {"the ranks are asked to save and to end",
                                       "mpiexec is told to end them now", "mpiexec is killed"};
    double now = cmn_clock();

    if (j->observed->stops == 3 || (j->observed->stops && now - j->stopped < ONE_REQUEST)) {
        return;
    }
    cmn_journal_say("stop", "signal %d (%s): %s", cmn_stop_signal(), strsignal(cmn_stop_signal()),
                    what[j->observed->stops]);
    kill(j->pid, with[j->observed->stops++]);
    j->stopped = j->asked = now;
}

/* mpiexec silently drops SIGUSR1 while it starts the ranks, so the signal is sent until an event
 * says that the ranks have it. A rank that is too young to know the signal dies of it, and loses
 * nothing. */
static void ask_again(struct job *j)
{
    double now = cmn_clock();

    if ((j->observed->stops == 1 || (!j->observed->stops && j->observed->moves)) &&
        !j->observed->stop_heard && !j->fault && now - j->asked >= ASK_AGAIN) {
        kill(j->pid, SIGUSR1);
        j->asked = now;
    }
}

/* Asks the ranks to save and to end where they are to continue on other machines. */
static void look_out(struct job *j)
{
    if (j->observed->reached[0] && !j->observed->moves && !j->observed->stop_heard &&
        !j->observed->ended && !j->observed->stops && !j->fault && cmn_lookout_sees_others()) {
        j->observed->moves = 1;
        j->asked = cmn_clock();
        kill(j->pid, SIGUSR1);
    }
}

static void pass_signals(struct job *j, int found)
{
    if (found & CMN_STOP) {
        pass_stop(j);
    }
    if (found & CMN_PAUSE) {
        kill(j->pid, SIGTSTP);
        raise(SIGSTOP);
        found |= CMN_CONTINUE;
    }
    if (found & CMN_CONTINUE) {
        kill(j->pid, SIGCONT);
    }
}

/* Says that mpiexec is stopped: its ranks may have ended long since, and nobody would know. */
static void report_stopped(const struct job *j)
{
    int by = cmn_process_stopped(j->pid);

    if (by) {
        cmn_journal_say("stopped",
                        "mpiexec is stopped by signal %d (%s): continue it with "
                        "kill -CONT %d",
                        by, strsignal(by), (int)j->pid);
    }
}

/* ---- the end ---- */

/* Ends an mpiexec that has not ended some time after a fault. */
static void end_what_hangs(struct job *j)
{
    double passed = j->fault ? cmn_clock() - j->fault : 0;

    if (passed > END && !j->observed->hung) {
        cmn_journal_say("hung", "mpiexec does not end: it is told to");
        j->observed->hung = 1;
        kill(j->pid, SIGTERM);
    } else if (passed > END + KILL) {
        kill(j->pid, SIGKILL);
    }
}

static void watch(struct job *j, int fd, int *status)
{
    char text[sizeof j->filter.json];
    int open = 1, found, explains;
    double until;
    size_t n;

    while (!cmn_process_ended(j->pid, status)) {
        found = cmn_signals_wait(open ? fd : -1, 1000);
        pass_signals(j, found);
        if (found & CMN_READABLE) {
            open = pass_on(j, fd);
        }
        look_out(j);
        ask_again(j);
        report_stopped(j);
        end_what_hangs(j);
    }
    /* Processes that outlive mpiexec may hold the other end, and write for ever. A request to stop
     * that comes now has nobody to be passed to, and counts after the attempt. */
    until = cmn_clock() + REST;
    for (found = CMN_READABLE; open && found && cmn_clock() < until;) {
        found = cmn_signals_wait(fd, 200);
        if (found & CMN_PAUSE) {
            raise(SIGSTOP);
        }
        if (found & CMN_READABLE) {
            open = pass_on(j, fd);
        }
    }
    n = cmn_event_filter_end(&j->filter, text);
    take_text(j, text, n);
    end_line(j, '\0');
    /* cmn-run explains a bad end. A box without an end may hold what ranks have said. */
    explains = *status &&
               (j->observed->stops || j->observed->stop_heard || cmn_observed_fault(j->observed));
    release(j, explains ? j->complete : 0);
}

int cmn_job_run(char *const *argv, struct cmn_observed *observed, int *status)
{
    struct job j = {.observed = observed};
    int ends[2], killed;

    cmn_observe_nothing(observed);
    if (pipe2(ends, O_CLOEXEC)) {
        return cmn_run_fail("a pipe cannot be opened: %s", strerror(errno));
    }
    j.pid = cmn_process_start(argv, -1, ends[1]);
    close(ends[1]);
    if (j.pid > 0) {
        watch(&j, ends[0], status);
        cmn_lookout_end(); /* else its processes would count as the job's */
        killed = cmn_process_end_rest(observed->hung ? 1 : LEFT);
        if (killed) {
            cmn_journal_say("left", "%d process%s of the job did not end by %s: killed", killed,
                            killed == 1 ? "" : "es", killed == 1 ? "itself" : "themselves");
        }
    }
    close(ends[0]);
    return j.pid > 0 ? 0 : -1;
}
