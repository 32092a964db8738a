#include "verdict.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* EX_TEMPFAIL of sysexits.h: how the ranks themselves end a job that has lost one of them. */
enum { LOST_STATUS = 75 };

void cmn_host_info_clear(struct cmn_host_info *f)
{
    memset(f, 0, sizeof *f);
    f->from = -1;
}

/* "… noticed that process rank R with PID P on node N exited on signal S (…)" */
static void take_signal(struct cmn_host_info *f, const char *line)
{
    const char *text = strstr(line, " noticed that process rank ");
    char host[256];
    int rank, signal_number;

    if (text && !f->signal &&
        sscanf(text, " noticed that process rank %d with PID %*d on node %255s exited on signal %d",
               &rank, host, &signal_number) == 3) {
        f->rank = rank;
        f->signal = signal_number;
        snprintf(f->host, sizeof f->host, "%s", host);
    }
}

static void take_daemon(struct cmn_host_info *f, const char *line)
{
    const char *text = strstr(line, "Remote daemon: ");

    f->daemon |= strstr(line, "lost communication with a remote daemon") ||
                 strstr(line, "unable to reliably start one or more daemons");
    if (f->daemon && text && (text = strstr(text, " on node "))) {
        sscanf(text, " on node %255s", f->host);
    }
}

/* "cmn: goes on from FOLDER/NAME-500.checkpoint, …" */
static int take_resume(struct cmn_host_info *f, const char *line)
{
    const char *text = strstr(line, "goes on from ");
    const char *end = text ? strstr(text, ".checkpoint") : NULL;
    const char *digits = end;

    if (!end) {
        return 0;
    }
    while (digits > text && digits[-1] >= '0' && digits[-1] <= '9') {
        digits--;
    }
    if (digits == end || digits[-1] != '-') {
        return 0;
    }
    f->from = atol(digits);
    snprintf(f->resume, sizeof f->resume, "%s", text + strlen("goes on "));
    return 1;
}

int cmn_host_info_line(struct cmn_host_info *f, const char *line)
{
    take_signal(f, line);
    take_daemon(f, line);
    f->no_program |= strstr(line, "was unable to find the specified executable") ||
                     strstr(line, "was unable to launch the specified application") ||
                     strstr(line, "fork a new process via the \"execve\" system call");
    f->stalled |= strstr(line, " in: the start of MPI") != NULL;
    f->still |= strstr(line, " writes checkpoints of ") != NULL;
    f->spoke |= !strncmp(line, "cmn: ", 5) || !strncmp(line, "cmn[", 4);
    f->heard |= !strncmp(line, "cmn: asked to stop", strlen("cmn: asked to stop"));
    if (!strncmp(line, "cmn[rank ", 9) && !f->word[0]) {
        snprintf(f->word, sizeof f->word, "%s", line);
    }
    if (strncmp(line, "cmn: ", 5) || !strstr(line, "checkpoint")) {
        return 0;
    }
    f->kept |= strstr(line, "first checkpoint on the disk") != NULL;
    return !take_resume(f, line);
}

static int earned(int signal_number)
{
    return signal_number == SIGSEGV || signal_number == SIGBUS || signal_number == SIGFPE ||
           signal_number == SIGILL || signal_number == SIGABRT;
}

static int asked_for(int signal_number)
{
    return signal_number == SIGINT || signal_number == SIGTERM;
}

static struct cmn_diagnosis lost(const struct cmn_host_info *f, struct cmn_diagnosis v)
{
    const char *word = f->word[0] ? "; " : "";

    v.end = CMN_LOST;
    if (f->signal) {
        v.end = earned(f->signal) ? CMN_CRASHED : CMN_LOST;
        snprintf(v.what, sizeof v.what, "rank %d on %s ended by signal %d (%s)%s%s", f->rank,
                 f->host, f->signal, strsignal(f->signal), word, f->word);
    } else if (f->daemon) {
        snprintf(v.what, sizeof v.what, "mpiexec has lost, or did not reach, %s%s%s",
                 f->host[0] ? f->host : "a machine", word, f->word);
    } else {
        snprintf(v.what, sizeof v.what, "a rank or a machine was lost: %s",
                 f->word[0] ? f->word : "no rank said more");
    }
    return v;
}

/* mpiexec's own end by a signal counts as if a shell had told of it. */
struct cmn_diagnosis cmn_verdict(const struct cmn_host_info *f, int status, int stop, int again)
{
    struct cmn_diagnosis v = {CMN_WRONG,
                            WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), ""};
    int signal_number = v.status > 128 && v.status <= 128 + 64 ? v.status - 128 : 0;

    if (v.status == 0 && stop && !f->spoke) {
        /* mpiexec, asked before its daemons were up, may end so without having started anything. */
        v.end = CMN_STOPPED;
        v.status = 128 + stop;
        snprintf(v.what, sizeof v.what, "asked to stop (%s) before the job began", strsignal(stop));
    } else if (v.status == 0) {
        v.end = CMN_DONE;
        snprintf(v.what, sizeof v.what, "all went well");
    } else if (stop) {
        v.end = CMN_STOPPED;
        snprintf(v.what, sizeof v.what, "asked to stop (%s)", strsignal(stop));
    } else if (f->no_program) {
        snprintf(v.what, sizeof v.what, "mpiexec cannot start the program");
    } else if (f->hung) {
        return lost(f, v);
    } else if (f->signal ? asked_for(f->signal) : asked_for(signal_number)) {
        v.end = CMN_STOPPED;
        snprintf(v.what, sizeof v.what, "the job was asked to stop by a signal (status %d)",
                 v.status);
    } else if (v.status == LOST_STATUS || f->signal || f->daemon) {
        return lost(f, v);
    } else if (WIFSIGNALED(status)) {
        v.end = CMN_LOST;
        snprintf(v.what, sizeof v.what, "mpiexec itself ended by signal %d (%s)", signal_number,
                 strsignal(signal_number));
    } else if (signal_number) {
        v.end = earned(signal_number) ? CMN_CRASHED : CMN_LOST;
        snprintf(v.what, sizeof v.what, "a rank ended by signal %d (%s)", signal_number,
                 strsignal(signal_number));
    } else if (f->stalled) {
        v.end = CMN_CRASHED;
        snprintf(v.what, sizeof v.what, "MPI did not come up on all ranks");
    } else if (f->still && again) {
        v.end = CMN_LOST;
        snprintf(v.what, sizeof v.what, "what is left of an earlier try has not ended: %s",
                 f->word);
    } else {
        snprintf(v.what, sizeof v.what, "another try would end that way, too%s%s",
                 f->word[0] ? ": " : "", f->word);
    }
    return v;
}
