#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "events.h"
#include "say.h"

enum {
    LINE = 1024,
    AGAIN_MS =
        1000, /* stop signals within this time are one: a shell's Ctrl-C, and a batch system's, often come twice */
    ASK_MS = 2000,
    /* After a last word of a rank all should be over within ten seconds, or when mpiexec has noticed which machine is gone. Where it has
     * already written to that machine it waits until TCP gives up, a quarter of an hour. */
    END_MS = 20000,
    KILL_MS = 5000,
    REST_MS = 2000,
    LEFT_SECONDS = 10
};

struct job {
    pid_t pid;
    struct cmn_host_info *facts;
    char line[LINE];
    size_t n;
    int stops;         /* signals passed on */
    long long stopped; /* when, in ms */
    long long asked;   /* when SIGUSR1 was sent last */
    long long fault;   /* when the first word of a fault came, 0: none has */
};

static long long milliseconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (long long)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* The line without what stands before its text: control sequences, as a progress bar on a terminal leaves them, and what mpiexec's
 * --tag-output puts there, "[1,0]<stderr>:". */
static const char *text_of(const char *line)
{
    for (;;) {
        int skip = 0;
        if (!strncmp(line, "\033[", 2)) {
            skip = 2 + (int)strspn(line + 2, "0123456789:;<=>? ");
            skip += line[skip] != '\0';
        } else {
            sscanf(line, "[%*d,%*d]<stderr>:%n", &skip);
        }
        if (!skip) {
            return line;
        }
        line += skip;
    }
}

/* What has come so far is a line, or so much of one as anybody needs. */
static void take_line(struct job *j)
{
    const int named = j->facts->word[0] || j->facts->signal || j->facts->daemon;
    const char *text;

    j->line[j->n] = '\0';
    j->n = 0;
    text = text_of(j->line);
    if (cmn_host_info_line(j->facts, text)) {
        cmn_journal("said", "%s", text);
    }
    if (j->facts->resume[0]) {
        cmn_journal("resume", "%s", j->facts->resume);
        j->facts->resume[0] = '\0';
    }
    if (!named && (j->facts->word[0] || j->facts->signal || j->facts->daemon)) {
        cmn_journal("fault", "%s", text); /* the first word of it, when it comes */
        j->fault = milliseconds();
    }
}

/* Passes on what is there. Returns 0 at the end. */
static int pass_on(struct job *j, int fd)
{
    char text[4096];
    ssize_t n = read(fd, text, sizeof text);

    if (n <= 0) {
        return n < 0 && (errno == EAGAIN || errno == EINTR);
    }
    for (ssize_t done = 0, w; done < n; done += w) {
        w = write(STDERR_FILENO, text + done, (size_t)(n - done));
        if (w < 0) {
            break; /* nobody reads it; the journal is still written */
        }
    }
    for (ssize_t i = 0; i < n; i++) {
        if (text[i] == '\n' || text[i] == '\r' || j->n + 1 == LINE) {
            take_line(j);
        } else {
            j->line[j->n++] = text[i];
        }
    }
    return 1;
}

/* First SIGUSR1, which mpiexec hands to every rank: they save and end by themselves, and take the time that it takes. After
 * SIGTERM mpiexec would kill them within seconds. That is for the second time, and SIGKILL for the third. */
static void pass_stop(struct job *j)
{
    static const int with[] = {SIGUSR1, SIGTERM, SIGKILL};
    static const char *const what[] = {"the ranks are asked to save and to end",
                                       "mpiexec is told to end them now", "mpiexec is killed"};
    long long now = milliseconds();

    if (j->stops == 3 || (j->stops && now - j->stopped < AGAIN_MS)) {
        return;
    }
    cmn_journal_say("stop", "signal %d (%s): %s", cmn_trace_events_stop(), strsignal(cmn_trace_events_stop()),
                    what[j->stops]);
    kill(j->pid, with[j->stops++]);
    j->stopped = j->asked = now;
}

/* mpiexec drops SIGUSR1 while it starts the ranks, without a word: it is sent until the ranks say that they have heard it. A rank that is
 * too young to know the signal dies of it, and loses nothing. */
static void ask_again(struct job *j)
{
    long long now = milliseconds();

    if (j->stops == 1 && !j->facts->heard && !j->fault && now - j->asked >= ASK_MS) {
        kill(j->pid, SIGUSR1);
        j->asked = now;
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

/* Its ranks may have ended long since; nobody would hear of it. */
static void say_stopped(const struct job *j)
{
    int by = cmn_process_stopped(j->pid);

    if (by) {
        cmn_journal_say("stopped",
                        "mpiexec is stopped by signal %d (%s): kill -CONT %d lets it go on", by,
                        strsignal(by), (int)j->pid);
    }
}

/* Once there was a fault mpiexec has some time to end. */
static void end_what_hangs(struct job *j)
{
    long long passed = j->fault ? milliseconds() - j->fault : 0;

    if (passed > END_MS && !j->facts->hung) {
        cmn_journal_say("hung", "mpiexec does not end: it is told to");
        j->facts->hung = 1;
        kill(j->pid, SIGTERM);
    } else if (passed > END_MS + KILL_MS) {
        kill(j->pid, SIGKILL);
    }
}

/* Once mpiexec has ended. Processes that outlive it may hold the other end, and write for ever. A stop that comes now is nobody's to be passed to, and
 * counts after the try. */
static void read_rest(struct job *j, int fd, int open)
{
    const long long until = milliseconds() + REST_MS;
    int found = CMN_READABLE;

    while (open && found && milliseconds() < until) {
        found = cmn_trace_events_wait_alone(fd, 200);
        if (found & CMN_READABLE) {
            open = pass_on(j, fd);
        }
    }
    take_line(j);
}

static void watch(struct job *j, int fd, int *status)
{
    int open = 1;

    while (!cmn_process_ended(j->pid, status)) {
        int found = cmn_trace_events_wait(open ? fd : -1, 1000);
        pass_signals(j, found);
        if (found & CMN_READABLE) {
            open = pass_on(j, fd);
        }
        ask_again(j);
        say_stopped(j);
        end_what_hangs(j);
    }
    read_rest(j, fd, open);
}

int cmn_job_run(char *const *argv, struct cmn_host_info *facts, int *status)
{
    struct job j = {.facts = facts};
    int ends[2], killed;

    cmn_host_info_clear(facts);
    if (pipe2(ends, O_CLOEXEC)) {
        return cmn_run_fail("a pipe cannot be had: %s", strerror(errno));
    }
    j.pid = cmn_process_start(argv, -1, ends[1]);
    close(ends[1]);
    if (j.pid > 0) {
        watch(&j, ends[0], status);
        killed = cmn_process_rest(facts->hung ? 1 : LEFT_SECONDS);
        if (killed) {
            cmn_journal_say("left", "%d process%s of the job did not end by %s: killed", killed,
                            killed == 1 ? "" : "es", killed == 1 ? "itself" : "themselves");
        }
    }
    close(ends[0]);
    return j.pid > 0 ? 0 : -1;
}
