/* What cmn-run makes of an attempt: each row is what was seen of one, and what follows from it. */
#include "check.h"

#include <signal.h>

#include "../../../run/diagnosis.c"

#define DIED "mpiexec noticed that process rank 1 with PID 7 on node b exited on signal "
#define NO_FILE "mpiexec was unable to find the specified executable file, and therefore\n"
#define NO_ACCESS "mpiexec was unable to launch the specified application as it could not access\n"
#define NO_EXEC "Open MPI tried to fork a new process via the \"execve\" system call but\n"
#define FATAL "@failure disk full\n"
#define ERROR "@error bad cfg\n"
#define LOST "ORTE has lost communication with a remote daemon.\n"
#define NODE_C "  Remote daemon: [[1,0],2] on node c\n"
#define SLURM "srun: error: no answer\n"

/* Lines of mpiexec; behind "@" events of rank 1 on b, or what cmn-run has done itself. */
static const struct row {
    const char *seen;
    int status; /* of mpiexec; below 0: its signal */
    int stop, again;
    enum cmn_outcome outcome;
    int own;
    const char *what;
} rows[] = {
    {"", 0, 0, 0, CMN_DONE, 0, "all went well"},
    {"@end\n", 0, SIGINT, 0, CMN_DONE, 0, "all went well"},
    {"", 0, SIGINT, 0, CMN_STOPPED, 130, "asked to stop (Interrupt) before the job began"},
    {"@stop\n", 143, SIGTERM, 0, CMN_STOPPED, 143, "asked to stop (Terminated)"},
    {"@stop\n@stops\n" DIED "9 (Killed).\n", 137, SIGTERM, 0, CMN_STOPPED, 137,
     "rank 1 on b ended by signal 9 (Killed): not all was saved"},
    {"@stop\n@stops\n" LOST NODE_C, 205, SIGTERM, 0, CMN_STOPPED, 205, "c: not all was saved"},
    {"@stops\n" LOST, 205, SIGTERM, 0, CMN_STOPPED, 205, "asked to stop"},
    {"@stop\n@stops\n@end\n" DIED "9 (Killed).\n", 137, SIGTERM, 0, CMN_STOPPED, 137, "asked to"},
    {"@stop\n@stops\n@stops\n" DIED "9 (Killed).\n", 137, SIGTERM, 0, CMN_STOPPED, 137, "asked to"},
    {"@stop\n@stops\n" DIED "10 (User).\n", 138, SIGTERM, 0, CMN_STOPPED, 138, "asked to stop"},
    {"", 1, 0, 0, CMN_WRONG, 1, "another attempt would end that way, too"},
    {ERROR, 1, 0, 1, CMN_WRONG, 1, "that way, too: rank 1 on b: bad cfg"},
    {ERROR, 0, 0, 0, CMN_WRONG, 1, "rank 1 on b: bad cfg"},
    {ERROR, 143, 0, 0, CMN_WRONG, 1, "rank 1 on b: bad cfg"},
    {ERROR FATAL, 13, 0, 0, CMN_WRONG, 1, "rank 1 on b: bad cfg"},
    {ERROR "@hung\n", 137, 0, 0, CMN_WRONG, 1, "bad cfg"},
    {ERROR DIED "9 (Killed).\n", 137, 0, 0, CMN_FAILED, 137, "signal 9 (Killed); rank 1 on b: bad"},
    {FATAL, 13, 0, 0, CMN_FAILED, 13, "a rank or a machine failed: rank 1 on b: disk full"},
    {FATAL ERROR, 75, 0, 0, CMN_FAILED, 75, "disk full"},
    {FATAL, 142, 0, 0, CMN_FAILED, 75, "disk full"}, /* it ends itself when its end hangs */
    {FATAL DIED "14 (Alarm clock).\n", 142, 0, 0, CMN_FAILED, 75, "failed: rank 1 on b: disk"},
    {ERROR DIED "14 (Alarm clock).\n", 142, 0, 0, CMN_WRONG, 1, "bad cfg"},
    {DIED "14 (Alarm clock).\n", 142, 0, 0, CMN_FAILED, 142, "rank 1 on b ended by signal 14"},
    {"@training\n", 75, 0, 0, CMN_FAILED, 75, "a rank or a machine failed: no rank said why"},
    {"@training\n", 137, 0, 0, CMN_FAILED, 137, "a rank ended by signal 9 (Killed)"},
    {"@training\n", 139, 0, 0, CMN_CRASHED, 139, "a rank ended by signal 11"},
    {"@training\n", -SIGSEGV, 0, 0, CMN_FAILED, 139, "mpiexec itself ended by signal 11"},
    {"@training\n", 159, 0, 0, CMN_FAILED, 159, "ended by signal 31"},
    {"@training\n", 160, 0, 0, CMN_WRONG, 160, "another attempt"},
    {"@training\n", 128, 0, 0, CMN_WRONG, 128, "another attempt"},
    {DIED "11 (Segmentation fault).\n", 139, 0, 0, CMN_CRASHED, 139,
     "rank 1 on b ended by signal 11"},
    {DIED "7 (Bus error).\n", 135, 0, 0, CMN_CRASHED, 135, ""},
    {DIED "8 (FPE).\n", 136, 0, 0, CMN_CRASHED, 136, ""},
    {DIED "4 (Illegal).\n", 132, 0, 0, CMN_CRASHED, 132, ""},
    {DIED "6 (Aborted).\n", 134, 0, 0, CMN_CRASHED, 134, ""},
    {DIED "9 (Killed).\n" DIED "11 (Segmentation fault).\n", 137, 0, 0, CMN_FAILED, 137,
     "signal 9"},
    {"prterun noticed that process rank 3 with PID 7 on node\na-long-name exited on\nsignal 9 "
     "(Killed).\n",
     137, 0, 0, CMN_FAILED, 137, "rank 3 on a-long-name ended by signal 9"},
    {"x noticed that process rank 3\nb\nc\nd\nwith PID 7 on node b exited on signal 9\n", 1, 0, 0,
     CMN_WRONG, 1, "another attempt"},
    {"@training\n" DIED "9 (Killed).\n@life\n", 1, 0, 0, CMN_WRONG, 1, "another attempt"},
    {"@training\n" DIED "9 (Killed).\n@life\n", 0, 0, 0, CMN_FAILED, 75, "no rank said why"},
    {"@training\n" DIED "9 (Killed).\n", 0, 0, 0, CMN_FAILED, 75, "rank 1 on b"},
    {"@end\n" DIED "9 (Killed).\n", 0, 0, 0, CMN_DONE, 0, ""},
    {DIED "15 (Terminated).\n", 143, 0, 0, CMN_MOVES, 143, "rank 1 on b ended by signal 15"},
    {"@training\n", 143, 0, 0, CMN_STOPPED, 143, "asked to stop by a signal (status 143)"},
    {"@training\n", 130, 0, 0, CMN_STOPPED, 130, ""},
    {DIED "2 (Interrupt).\n", 1, 0, 0, CMN_STOPPED, 1, "rank 1 on b ended by signal 2"},
    {"@stop\n@leave\n", 143, 0, 0, CMN_MOVES, 143, ""},
    {"@stop\n@moves\n", 138, 0, 0, CMN_MOVES, 138, ""},
    {"@stop\n@moves\n" DIED "11 (Segmentation fault).\n", 139, 0, 0, CMN_CRASHED, 139, "signal 11"},
    {"@stop\n@leave\n" DIED "9 (Killed).\n", 137, 0, 0, CMN_FAILED, 137, "signal 9"},
    {"@stop\n@leave\n@end\n" DIED "9 (Killed).\n", 137, 0, 0, CMN_MOVES, 137, "signal 9"},
    {"@stop\n@moves\n" FATAL, 75, 0, 0, CMN_FAILED, 75, "disk full"},
    {"@leave\n", 138, 0, 0, CMN_FAILED, 138, "signal 10"},
    {"@moves\n" DIED "10 (User).\n", 138, 0, 0, CMN_MOVES, 138, ""},
    {DIED "10 (User).\n", 138, 0, 0, CMN_FAILED, 138, "signal 10"},
    {"@training\n@hung\n", 137, 0, 0, CMN_FAILED, 137, "no rank said why"},
    {"*** An error occurred in Socket closed\n", 14, 0, 0, CMN_FAILED, 14, "connection to a rank"},
    {ERROR "*** An error occurred in Socket closed\n", 14, 0, 0, CMN_WRONG, 1, "bad cfg"},
    {"@start-timeout late\n", 75, 0, 0, CMN_CRASHED, 75,
     "MPI did not come up on all ranks; rank 1"},
    {"@start-timeout late\n" LOST, 75, 0, 0, CMN_FAILED, 75, "a machine; rank 1 on b: late"},
    {LOST NODE_C, 205, 0, 0, CMN_FAILED, 205, "mpiexec has lost, or did not reach, c"},
    {NODE_C LOST, 205, 0, 0, CMN_FAILED, 205, "mpiexec has lost, or did not reach, a machine"},
    {LOST NODE_C, 0, 0, 0, CMN_FAILED, 75, "c"},
    {"A daemon died unexpectedly with status 255\n", 1, 0, 0, CMN_FAILED, 1, "a machine"},
    {"a daemon has unexpectedly failed after launch\n", 1, 0, 0, CMN_FAILED, 1, "a machine"},
    {"ORTE is unable to establish a communication connection to the\n", 1, 0, 0, CMN_FAILED, 1,
     "a machine"},
    {"ORTE does not know how to route a message to the specified daemon\n", 1, 0, 0, CMN_FAILED, 1,
     "a machine"},
    {"mpiexec has detected that a required daemon terminated during execution\n", 1, 0, 0,
     CMN_FAILED, 1, "a machine"},
    {LOST NODE_C "Permission denied (publickey)\n", 1, 0, 0, CMN_WRONG, 1,
     "c: ssh may not log in there without a password: make a key"},
    {LOST "Permission denied (publickey)\n", 1, 0, 1, CMN_FAILED, 1,
     "did not reach, a machine: ssh may not log in"},
    {LOST "ssh: connect to host c: no route\n", 1, 0, 0, CMN_FAILED, 1, "did not reach, a machine"},
    {"@training\n" LOST "Permission denied (publickey)\n", 1, 0, 0, CMN_FAILED, 1, "a machine"},
    {NO_FILE, 134, 0, 0, CMN_WRONG, 134, "mpiexec cannot start the program"},
    {NO_FILE, 134, 0, 1, CMN_FAILED, 134, "mpiexec cannot start the program"},
    {NO_FILE "   Node:       b\n   Executable: /x/dark net\n", 66, 0, 0, CMN_WRONG, 66,
     "b: /x/dark net is not there, or may not be executed"},
    {NO_FILE "   Working directory: /y\n   Node: b\n", 66, 0, 0, CMN_WRONG, 66,
     "b: /y is not there"},
    {NO_ACCESS "Executable: /net/x\nNode: b\n", 132, 0, 1, CMN_FAILED, 132,
     "b: /net/x is not there"},
    {NO_EXEC, 131, 0, 0, CMN_WRONG, 131, "mpiexec cannot start the program"}, /* no SIGQUIT */
    {NO_EXEC "  Local host: b\n  Error: Cannot allocate memory\n", 131, 0, 0, CMN_FAILED, 131,
     "mpiexec could not start a rank: Error: Cannot allocate memory"},
    {NO_FILE "  Error: Cannot allocate memory\n", 1, 0, 0, CMN_FAILED, 1,
     "mpiexec could not start a rank: Error: Cannot allocate memory"},
    {NO_FILE "  Error: No such file\n", 1, 0, 0, CMN_WRONG, 1, "cannot start the program"},
    {"   Executable: /x\n" NO_FILE "   Node: b\n", 66, 0, 0, CMN_WRONG, 66, "cannot start"},
    {"Error: system limit exceeded on number of pipes\n", 1, 0, 0, CMN_WRONG, 1, "another attempt"},
    {NO_ACCESS "Error: system limit exceeded on number of pipes\nNode: b\n", 186, 0, 0, CMN_FAILED,
     186, "mpiexec could not start a rank on b: Error: system limit"},
    {NO_FILE " Node: b\nError: system limit exceeded on number of pipes\n", 1, 0, 0, CMN_FAILED, 1,
     "mpiexec could not start a rank on b: Error: system limit"},
    {"unrecognized argument mca\n", 255, 0, 0, CMN_WRONG, 1, "mpiexec is not Open MPI's"},
    {"SIGPIPE detected on fd 1\n", 1, 0, 0, CMN_WRONG, 141,
     "nobody reads the job's standard output"},
    {"@training\n", -SIGPIPE, 0, 0, CMN_WRONG, 141, "nobody reads"},
    {"@training\n", 141, 0, 0, CMN_FAILED, 141, "a rank ended by signal 13"},
    {SLURM, 1, 0, 0, CMN_FAILED, 1, "mpiexec could not use Slurm: srun: error: no answer"},
    {ERROR SLURM, 1, 0, 0, CMN_WRONG, 1, "bad cfg"},
    {"requires a minimum Slurm version\n Major: 0\n", 1, 0, 0, CMN_FAILED, 1,
     "Slurm: no version could be read"},
    {"requires a minimum Slurm version\n Major: 1\n", 1, 0, 0, CMN_WRONG, 1, "another attempt"},
    {" Major: 0\n", 1, 0, 0, CMN_WRONG, 1, "another attempt"},
    {"@locked\n" ERROR, 1, 0, 0, CMN_WRONG, 1, "another attempt would end that way, too: rank 1"},
    {"@locked\n" ERROR, 1, 0, 1, CMN_FAILED, 1,
     "processes of an earlier attempt have not ended: r"},
    {"", 1, 0, 1, CMN_FAILED, 1, "mpiexec ended before a rank began"},
    {" \n", 250, 0, 0, CMN_FAILED, 250, "mpiexec ended before a rank began"},
    {"something\n", 250, 0, 0, CMN_WRONG, 250, "another attempt"},
    {"something\n", 213, 0, 1, CMN_FAILED, 213, "mpiexec ended before a rank began"},
    {"@training\n", 250, 0, 1, CMN_WRONG, 250, "another attempt"},
};

static void see(struct cmn_observed *o, const char *line)
{
    struct cmn_event e = {.rank = 1, .host = "b", .iteration = 7};

    if (line[0] != '@') {
        cmn_observe_mpiexec(o, line);
    } else if (!strcmp(line, "@life")) {
        cmn_observe_life(o);
    } else if (!strcmp(line, "@hung")) {
        o->hung = 1;
    } else if (!strcmp(line, "@moves")) {
        o->moves = 1;
    } else if (!strcmp(line, "@stops")) {
        o->stops++;
    } else {
        sscanf(line, "@%s %[^\n]", e.kind, e.text);
        cmn_observe_event(o, &e);
    }
}

static void see_all(struct cmn_observed *o, const char *lines)
{
    char *copy = strdup(lines), *rest = copy, *line;

    cmn_observe_nothing(o);
    while ((line = strsep(&rest, "\n")) && rest) {
        see(o, line);
    }
    free(copy);
}

TEST(what_follows)
{
    for (size_t i = 0; i < COUNT(rows); i++) {
        const struct row *r = &rows[i];
        struct cmn_observed o;
        struct cmn_diagnosis d;
        see_all(&o, r->seen);
        d = cmn_diagnose(&o, r->status < 0 ? -r->status : r->status << 8, r->stop, r->again);
        if (d.outcome != r->outcome || d.status != r->own || !strstr(d.what, r->what)) {
            fail_msg("row %zu, %s: outcome %d, status %d: %s", i, r->seen, (int)d.outcome, d.status,
                     d.what);
        }
    }
}

/* Whether it is a fault, and whether ranks may have run unseen. */
TEST(faults_and_unseen_ranks)
{
    static const struct {
        const char *seen;
        int fault, blind;
    } seen[] = {
        {"", 0, 1},
        {"@training\n", 0, 0},
        {FATAL, 1, 0},
        {DIED "9 (Killed).\n", 1, 1},
        {LOST, 1, 1},
        {LOST "connection timed out\n", 1, 0},
        {"connection timed out\n", 0, 1},
        {"*** An error occurred in Socket closed\n", 1, 1},
        {NO_FILE, 0, 0},
        {SLURM, 0, 0},
        {"@training\n" SLURM, 0, 0},
        {"ORTE was unable to reliably start one or more daemons.\n", 1, 0},
        {"unrecognized argument mca\n", 0, 0},
        {DIED "9 (Killed).\n@life\n", 0, 1},
    };
    struct cmn_observed o;

    for (size_t i = 0; i < COUNT(seen); i++) {
        see_all(&o, seen[i].seen);
        if (cmn_observed_fault(&o) != seen[i].fault || cmn_observed_blind(&o) != seen[i].blind) {
            fail_msg("%s: fault %d, blind %d", seen[i].seen, cmn_observed_fault(&o),
                     cmn_observed_blind(&o));
        }
    }
    see_all(&o, "@resume\n@checkpoint iteration 9\n@stop\n@leave\n@leave\n");
    assert_int_equal(o.resumed_from, 7);
    assert_true(o.checkpoint && o.stop_heard && o.began && !o.ended);
    assert_string_equal(o.reached, "iteration 9");
    assert_string_equal(o.leaving, "b b ");
    see_all(&o, "@training iteration 3\n");
    assert_int_equal(o.resumed_from, -1);
    assert_string_equal(o.reached, "iteration 3");
}

/* What ssh, shells and Open MPI say of a machine that was not reached: NULL where waiting helps. */
TEST(machines_that_are_not_reached)
{
    static const struct {
        const char *line, *why;
    } said[] = {
        {"@ REMOTE HOST IDENTIFICATION HAS CHANGED! @", "its host key is not the one"},
        {"Host key verification failed.", "its host key is not known here"},
        {"No ED25519 host key is known for c", "its host key is not known here"},
        {"c: Permission denied (publickey,password).", "ssh may not log in"},
        {"Received disconnect: Too many authentication failures", "ssh may not log in"},
        {"ssh: Could not resolve hostname c: Temporary failure in name resolution", NULL},
        {"ssh: Could not resolve hostname c: Name or service not known", "there is no machine"},
        {"bash: line 1: orted: command not found", "Open MPI is not where"},
        {"sh: 1: prted: not found", "Open MPI is not where"},
        {"zsh: no such file or directory: /x/orted", "Open MPI is not where"},
        {"tcsh: prted: No such file or directory", "Open MPI is not where"},
        {"ssh: connect to host c port 22: No route to host", NULL},
        {"Connection timed out", NULL},
        {"Connection closed by 10.0.0.7", NULL},
        {"Connection reset by 10.0.0.7", NULL},
    };

    for (size_t i = 0; i < COUNT(said); i++) {
        const struct cmn_unreached *u = cmn_unreached_find(said[i].line);
        assert_non_null(u);
        assert_int_equal(!u->why, !said[i].why);
        assert_int_equal(!u->todo, !said[i].why);
        assert_true(!u->why || strstr(u->why, said[i].why) == u->why);
    }
    assert_null(cmn_unreached_find("permission denied"));
}

TESTS(NULL, NULL)
