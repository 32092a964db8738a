#include "diagnosis.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { SENTENCE_LINES = 4 }; /* a sentence of mpiexec has at most so many */

void cmn_observe_nothing(struct cmn_observed *o)
{
    memset(o, 0, sizeof *o);
    o->resumed_from = -1;
}

/* ---- events ---- */

static int is(const struct cmn_event *e, const char *kind)
{
    return !strcmp(e->kind, kind);
}

void cmn_observe_event(struct cmn_observed *o, const struct cmn_event *e)
{
    o->began = 1;
    o->stop_heard |= is(e, "stop");
    o->checkpoint |= is(e, "checkpoint");
    o->ended |= is(e, "end");
    o->start_timeout |= is(e, "start-timeout");
    o->locked |= is(e, "locked");
    if (is(e, "training") || is(e, "checkpoint")) {
        snprintf(o->reached, sizeof o->reached, "%.255s", e->text);
    }
    if (is(e, "leave")) {
        size_t n = strlen(o->leaving);
        snprintf(o->leaving + n, sizeof o->leaving - n, "%s ", e->host);
    }
    if (is(e, "resume")) {
        o->resumed_from = e->iteration;
    }
    if ((is(e, "failure") || is(e, "error") || is(e, "start-timeout")) && !o->fatal[0]) {
        o->error = is(e, "error");
        snprintf(o->fatal, sizeof o->fatal, "rank %d on %s: %s", e->rank, e->host, e->text);
    }
}

/* ---- mpiexec ---- */

/* The sentences are those of OpenSSH, shells (bash, dash, zsh, tcsh), Open MPI 4 and Open MPI 5. */
static const struct cmn_unreached unreached[] = {
    {"remote host identification has changed", NULL, "its host key is not the one known here",
     "if that is right, `ssh-keygen -R` its name, then log in once by hand"},
    {"host key verification failed", NULL, "its host key is not known here",
     "log in once by hand with ssh"},
    {"host key is known for", NULL, "its host key is not known here",
     "log in once by hand with ssh"},
    {"permission denied (", NULL, "ssh may not log in there without a password",
     "make a key with ssh-keygen, and ssh-copy-id it there"},
    {"too many authentication failures", NULL, "ssh may not log in there without a password",
     "make a key with ssh-keygen, and ssh-copy-id it there"},
    {"could not resolve hostname", "temporary", NULL, NULL},
    {"could not resolve hostname", NULL, "there is no machine of this name",
     "correct it, or add it to /etc/hosts"},
#define NO_DAEMON                                                         \
    "Open MPI is not where the shell that ssh starts there looks for it", \
        "install the same version, or name its folder with -mpi '--prefix /path/of/openmpi'"
    {"orted", "not found", NO_DAEMON},
    {"prted", "not found", NO_DAEMON},
    {"orted", "no such file", NO_DAEMON},
    {"prted", "no such file", NO_DAEMON},
    {"ssh: connect to host ", NULL, NULL, NULL},
    {"connection timed out", NULL, NULL, NULL},
    {"connection closed by ", NULL, NULL, NULL},
    {"connection reset by ", NULL, NULL, NULL},
};

const struct cmn_unreached *cmn_unreached_find(const char *line)
{
    for (size_t i = 0; i < sizeof unreached / sizeof unreached[0]; i++) {
        const struct cmn_unreached *u = &unreached[i];
        if (strcasestr(line, u->sentence) && (!u->and || strcasestr(line, u->and))) {
            return u;
        }
    }
    return NULL;
}

/* A rank may write such a sentence, too; then it has begun. */
static void take_unreached(struct cmn_observed *o, const char *line)
{
    if (!o->began && !o->unreached) {
        o->unreached = cmn_unreached_find(line);
    }
    o->not_started |= strstr(line, "unable to reliably start one or more daemons") != NULL;
}

/* mpiexec writes "Executable: PROGRAM" or "Working directory: FOLDER", and "Node: NAME", in either
 * order. */
static void take_program(struct cmn_observed *o, const char *line)
{
    o->no_program |= strstr(line, "was unable to find the specified executable") ||
                     strstr(line, "was unable to launch the specified application") ||
                     strstr(line, "fork a new process via the \"execve\" system call");
    if (o->no_program) {
        sscanf(line, " Executable: %511[^\n]", o->missing);
        sscanf(line, " Working directory: %511[^\n]", o->missing);
        sscanf(line, " Node: %255s", o->missing_on);
    }
}

/* mpiexec writes "… noticed that process rank R with PID P on node N exited on signal S (…)", which
 * Open MPI 5 breaks into lines. A rank whose end hangs ends itself by SIGALRM: what it has said
 * before counts. */
static void take_signal(struct cmn_observed *o, const char *line)
{
    const char *text = strstr(line, " noticed that process rank ");
    size_t n = text ? 0 : strlen(o->sentence);
    char host[256];
    int rank, signal_number;

    if (o->signal || (!text && !n)) {
        return;
    }
    snprintf(o->sentence + n, sizeof o->sentence - n, "%s%s", n ? " " : "", line);
    o->sentence_lines = text ? 1 : o->sentence_lines + 1;
    text = strstr(o->sentence, " noticed that process rank ");
    if (sscanf(text, " noticed that process rank %d with PID %*d on node %255s exited on signal %d",
               &rank, host, &signal_number) == 3) {
        if (signal_number == SIGALRM && o->fatal[0]) {
            o->sentence[0] = '\0';
            return;
        }
        o->rank = rank;
        o->signal = signal_number;
        snprintf(o->host, sizeof o->host, "%s", host);
    } else if (o->sentence_lines == SENTENCE_LINES) {
        o->sentence[0] = '\0';
    }
}

static void take_daemon(struct cmn_observed *o, const char *line)
{
    static const char *const lost[] = {
        "lost communication with a remote daemon",
        "unable to reliably start one or more daemons",
        "daemon has unexpectedly failed after launch",
        "daemon died unexpectedly ",
        "a required daemon terminated during execution",
        "unable to establish a communication connection to the",
        "does not know how to route a message to the specified daemon",
    };
    const char *text = strstr(line, "Remote daemon: ");

    for (size_t i = 0; i < sizeof lost / sizeof lost[0]; i++) {
        o->daemon_lost |= strstr(line, lost[i]) != NULL;
    }
    if (o->daemon_lost && text && (text = strstr(text, " on node "))) {
        sscanf(text, " on node %255s", o->host);
    }
}

/* Takes what may be different in a moment. Open MPI 5 reports a Slurm that does not answer as
 * version 0.0, and an srun that failed not at all: then there is srun's own line. */
static void take_passing(struct cmn_observed *o, const char *line)
{
    static const int moment[] = {ENOMEM, EAGAIN, EMFILE, ENFILE, ETXTBSY, ESTALE, EIO};
    const char *error = strstr(line, " Error: ");
    int major, was = o->slurm || o->no_room;

    o->slurm_version |= strstr(line, "requires a minimum Slurm version") != NULL;
    o->slurm |= strstr(line, "srun: error: ") ||
                (o->slurm_version && sscanf(line, " Major: %d", &major) == 1 && major == 0);
    o->no_room |= strstr(line, "Error: system limit exceeded on number of ") != NULL;
    for (size_t i = 0; i < sizeof moment / sizeof moment[0]; i++) {
        o->no_room |= o->no_program && error && strstr(error, strerror(moment[i]));
    }
    if (!was && (o->slurm || o->no_room)) {
        line += strspn(line, " ");
        snprintf(o->passing, sizeof o->passing, "%s",
                 o->no_room || strstr(line, "srun: ") ? line : "no version could be read");
    }
    o->not_started |= o->no_room || (o->slurm && !o->began);
    o->spoken |= line[strspn(line, " \t")] != '\0';
}

void cmn_observe_mpiexec(struct cmn_observed *o, const char *line)
{
    take_signal(o, line);
    take_daemon(o, line);
    take_unreached(o, line);
    take_program(o, line);
    take_passing(o, line);
    /* Open MPI 5 ends a rank so, at times before mpiexec has noticed the death of the other one. */
    o->disconnected |= strstr(line, "*** An error occurred in Socket closed") != NULL;
    /* This sentence is Hydra's, the launcher of MPICH and Intel MPI. */
    o->other_launcher |= strstr(line, "unrecognized argument mca") != NULL;
    o->unread |= strstr(line, "SIGPIPE detected on fd") != NULL;
}

void cmn_observe_life(struct cmn_observed *o)
{
    o->refuted = 1;
    o->signal = o->daemon_lost = o->disconnected = 0;
    o->sentence[0] = o->host[0] = '\0';
}

int cmn_observed_fault(const struct cmn_observed *o)
{
    return o->fatal[0] || o->signal || o->daemon_lost || o->disconnected;
}

int cmn_observed_blind(const struct cmn_observed *o)
{
    return !o->began && !o->not_started && !o->no_program && !o->other_launcher &&
           !(o->daemon_lost && o->unreached);
}

/* ---- the diagnosis ---- */

/* Returns whether a program ends by this signal through a mistake of its own. */
static int is_crash(int signal_number)
{
    return signal_number == SIGSEGV || signal_number == SIGBUS || signal_number == SIGFPE ||
           signal_number == SIGILL || signal_number == SIGABRT;
}

static int is_stop_request(int signal_number)
{
    return signal_number == SIGINT || signal_number == SIGTERM;
}

/* Returns whether a rank or a machine was lost before all was saved. A rank that is too young to
 * know a request to stop dies of it, and loses nothing. */
static int is_cut_off(const struct cmn_observed *o)
{
    return !o->ended && (o->signal ? o->signal != SIGUSR1 && !is_stop_request(o->signal)
                                   : o->daemon_lost && o->began);
}

int cmn_observed_unsaved(const struct cmn_observed *o)
{
    return o->stops == 1 && is_cut_off(o);
}

/* Returns whether the ranks have ended to continue on other machines. */
static int have_left(const struct cmn_observed *o)
{
    return ((o->moves || o->leaving[0]) && o->stop_heard && !o->fatal[0] && !is_cut_off(o)) ||
           (o->moves && o->signal == SIGUSR1) || (o->signal == SIGTERM && o->host[0]);
}

static struct cmn_diagnosis failed(const struct cmn_observed *o, struct cmn_diagnosis d)
{
    const char *then = o->fatal[0] ? "; " : "";

    d.outcome = CMN_FAILED;
    if (o->signal) {
        d.outcome = is_crash(o->signal) ? CMN_CRASHED : CMN_FAILED;
        snprintf(d.what, sizeof d.what, "rank %d on %s ended by signal %d (%s)%s%s", o->rank,
                 o->host, o->signal, strsignal(o->signal), then, o->fatal);
    } else if (o->daemon_lost) {
        snprintf(d.what, sizeof d.what, "mpiexec has lost, or did not reach, %s%s%s%s%s",
                 o->host[0] ? o->host : "a machine", o->unreached && o->unreached->why ? ": " : "",
                 o->unreached && o->unreached->why ? o->unreached->why : "", then, o->fatal);
    } else {
        snprintf(d.what, sizeof d.what, "a rank or a machine failed: %s",
                 o->fatal[0]       ? o->fatal
                 : o->disconnected ? "MPI says that the connection to a rank broke"
                                   : "no rank said why");
    }
    return d;
}

static struct cmn_diagnosis stopped(const struct cmn_observed *o, struct cmn_diagnosis d, int stop)
{
    snprintf(d.what, sizeof d.what, "asked to stop (%s)", strsignal(stop));
    if (cmn_observed_unsaved(o)) {
        d = failed(o, d);
        snprintf(d.what + strlen(d.what), sizeof d.what - strlen(d.what), ": not all was saved");
    }
    d.outcome = CMN_STOPPED;
    return d;
}

/* Describes what a person has to put right. */
static struct cmn_diagnosis wrong(const struct cmn_observed *o, struct cmn_diagnosis d)
{
    if (o->no_program && o->missing[0] && o->missing_on[0]) {
        snprintf(d.what, sizeof d.what,
                 "%s: %s is not there, or may not be executed: the program and the current folder "
                 "have to lie at the same path on all machines",
                 o->missing_on, o->missing);
    } else if (o->no_program) {
        snprintf(d.what, sizeof d.what, "mpiexec cannot start the program");
    } else if (o->other_launcher) {
        d.status = 1;
        snprintf(d.what, sizeof d.what,
                 "mpiexec is not Open MPI's, and cmn-run knows the options and messages of no "
                 "other one: start the training by mpiexec itself");
    } else {
        d.status = 1;
        snprintf(d.what, sizeof d.what, "%s: %s: %s", o->host[0] ? o->host : "a machine",
                 o->unreached->why, o->unreached->todo);
    }
    return d;
}

/* Describes why mpiexec could not start the ranks, for a reason that may pass. */
static struct cmn_diagnosis not_begun(const struct cmn_observed *o, struct cmn_diagnosis d)
{
    if (o->slurm) {
        snprintf(d.what, sizeof d.what, "mpiexec could not use Slurm: %s", o->passing);
    } else if (o->no_room) {
        snprintf(d.what, sizeof d.what, "mpiexec could not start a rank%s%s: %s",
                 o->missing_on[0] ? " on " : "", o->missing_on, o->passing);
    } else if (o->no_program) {
        d = wrong(o, d);
    } else {
        snprintf(d.what, sizeof d.what, "mpiexec ended before a rank began");
    }
    d.outcome = CMN_FAILED;
    return d;
}

/* Returns the signal that a status stands for, or 0. Real-time signals end nobody: 160 and more are
 * errors of Open MPI 5. */
static int signal_of(int status)
{
    return status > 128 && status < 128 + 32 ? status - 128 : 0;
}

enum { PRRTE_FATAL = 250 }; /* a status of Open MPI 5, which may have said nothing */

/* Describes an end of which nobody has said why. */
static struct cmn_diagnosis by_status(const struct cmn_observed *o, struct cmn_diagnosis d,
                                      int mpiexec_by_signal, int again)
{
    int signal_number = signal_of(d.status);

    if (signal_number) {
        d.outcome = is_crash(signal_number) && !mpiexec_by_signal ? CMN_CRASHED : CMN_FAILED;
        snprintf(d.what, sizeof d.what, "%s ended by signal %d (%s)",
                 mpiexec_by_signal ? "mpiexec itself" : "a rank", signal_number,
                 strsignal(signal_number));
    } else if (o->locked && again) {
        d.outcome = CMN_FAILED;
        snprintf(d.what, sizeof d.what, "processes of an earlier attempt have not ended: %s",
                 o->fatal);
    } else if (!o->began && (again || (d.status == PRRTE_FATAL && !o->spoken))) {
        return not_begun(o, d);
    } else {
        snprintf(d.what, sizeof d.what, "another attempt would end that way, too%s%s",
                 o->fatal[0] ? ": " : "", o->fatal);
    }
    return d;
}

/* mpiexec's own end by a signal counts as if a shell had reported it. */
struct cmn_diagnosis cmn_diagnose(const struct cmn_observed *o, int status, int stop, int again)
{
    struct cmn_diagnosis d = {CMN_WRONG,
                              WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), ""};
    int signal_number = signal_of(d.status);

    /* Status 1 is what a rank's error means, whatever mpiexec makes of the other ranks' ends; and
     * the rank that names a failure may hang afterwards. */
    if (o->fatal[0] &&
        (signal_number == SIGALRM || (o->error && (o->hung || !(o->signal || o->daemon_lost))))) {
        d.status = o->error ? 1 : CMN_FAILED_STATUS;
        signal_number = 0;
    }
    if (d.status == 0 && stop && !o->began) {
        /* An mpiexec that is asked to stop before its daemons are up may end so, and has started
         * nothing. */
        d.outcome = CMN_STOPPED;
        d.status = 128 + stop;
        snprintf(d.what, sizeof d.what, "asked to stop (%s) before the job began", strsignal(stop));
    } else if (d.status == 0 && (o->signal || o->daemon_lost || o->refuted) && !o->ended) {
        d.status = CMN_FAILED_STATUS; /* Open MPI 5 loses a machine, says so, and ends with 0 */
        return failed(o, d);
    } else if (d.status == 0) {
        d.outcome = CMN_DONE;
        snprintf(d.what, sizeof d.what, "all went well");
    } else if (stop) {
        return stopped(o, d, stop);
    } else if (o->unread || (WIFSIGNALED(status) && signal_number == SIGPIPE)) {
        d.outcome = CMN_WRONG;
        d.status = CMN_UNREAD;
        snprintf(d.what, sizeof d.what,
                 "nobody reads the job's standard output any more, and mpiexec ends with that: "
                 "redirect it into a file");
    } else if (o->no_program && (o->no_room || again)) {
        /* The command could be started before: a machine that has come back may lack its network
         * folders for a while. */
        return not_begun(o, d);
    } else if (o->other_launcher || o->no_program ||
               (o->daemon_lost && o->unreached && o->unreached->todo && !again)) {
        return wrong(o, d);
    } else if (o->hung && !o->error) {
        return failed(o, d);
    } else if (have_left(o) || is_stop_request(o->signal ? o->signal : signal_number)) {
        snprintf(d.what, sizeof d.what, "the job was asked to stop by a signal (status %d)",
                 d.status);
        d = o->signal ? failed(o, d) : d;
        d.outcome = have_left(o) ? CMN_MOVES : CMN_STOPPED;
    } else if (o->start_timeout && !o->signal && !o->daemon_lost) {
        d.outcome = CMN_CRASHED;
        snprintf(d.what, sizeof d.what, "MPI did not come up on all ranks; %s", o->fatal);
    } else if (d.status == CMN_FAILED_STATUS || o->signal || o->daemon_lost ||
               ((o->fatal[0] || o->disconnected) && !o->error)) {
        /* Open MPI 5 may end with another status than that of the ranks. */
        return failed(o, d);
    } else if (o->slurm && !o->error) {
        return not_begun(o, d);
    } else {
        return by_status(o, d, WIFSIGNALED(status), again);
    }
    return d;
}
