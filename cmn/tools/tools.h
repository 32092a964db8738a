/* `darknet cmn …`: programs that train nothing. One table feeds dispatch, help and the manual page. */
#ifndef CMN_TOOLS_H
#define CMN_TOOLS_H

#include "trainer/session.h"

/* What a tool that needs the job is given, and what it gives back. */
struct cmn_tool_call {
    struct cmn_session *session;
    int argc; /* the -cmn_key arguments have been taken out; argv[0] is the tool's name */
    char **argv;
    int status; /* becomes the exit status, the same on all ranks */
};

struct cmn_tool {
    const char *name;
    const char *arguments;
    const char *help;
    /* Either of the two.
     * run: local, without MPI; returns the exit status. argv[0] is the tool's name.
     * job: collective, with MPI up and this rank's place known. 0, or -1 with a reason, which ends the job. */
    int (*run)(int argc, char **argv);
    int (*job)(struct cmn_tool_call *call);
    int copies; /* it is also for processes that a launcher started, and MPI takes for one each */
};

/* What help and the manual page say below the list of tools. */
#define CMN_TOOLS_NOTE "check and bench take -cmn_KEY VALUE and -nogpu, too."

/* Local. Tool i, or NULL after the last. */
const struct cmn_tool *cmn_tool_at(int i);

/* Local. The tool that argv[2] names; NULL, with a message on standard error, when it names none. */
const struct cmn_tool *cmn_tool_find(int argc, char **argv);

/* Collective, blocking. What a tool does follows from its arguments and keys: ranks with different ones would wait for
 * each other. 0, or -1 with a reason on each rank whose own are not rank 0's. */
int cmn_tool_compare(int argc, char **argv, const struct cmn_session *s);

/* Local. Runs a tool that has `run`; its exit status, 1 also when what it printed could not be written. */
int cmn_tool_run(const struct cmn_tool *tool, int argc, char **argv);

/* Local. Sends off what has been printed. 0, or -1 with a reason when any of it could not be written. */
int cmn_tool_flush(void);

int cmn_tool_list(int argc, char **argv);
int cmn_tool_man(int argc, char **argv);
int cmn_tool_chart(int argc, char **argv);
int cmn_tool_checkpoint(int argc, char **argv);
int cmn_tool_check(struct cmn_tool_call *call);
int cmn_tool_bench(struct cmn_tool_call *call);

#endif
