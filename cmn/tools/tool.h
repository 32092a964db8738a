/* A tool, `darknet cmn NAME`: a command that does not train. Each tool has its own file; tools.c
 * lists them. */
#ifndef CMN_TOOL_H
#define CMN_TOOL_H

#include "trainer/session.h"

/* The arguments of a tool that runs on all ranks of the job. */
struct cmn_tool_call {
    struct cmn_session *session;
    int argc;    /* without the -cmn_KEY arguments */
    char **argv; /* argv[0] is the tool's name */
    int status;  /* the exit status, which the tool sets to the same value on all ranks */
};

struct cmn_tool {
    const char *name;
    const char *arguments;
    const char *help;
    /* A tool has either run or job. run: local, without MPI; returns the exit status; argv[0] is
     * the tool's name. job: collective, after MPI and the topology are set up; ends the job when
     * something fails. */
    int (*run)(int argc, char **argv);
    void (*job)(struct cmn_tool_call *call);
    int copies; /* 1: it also runs if each process of the launcher is a job by itself */
};

/* Local. `tool` is the table, which has `tools` rows. */
int cmn_tool_list(int argc, char **argv, const struct cmn_tool *tool, int tools);
/* Local. Prints all keys by group. */
void cmn_tool_list_keys(void);
int cmn_tool_chart(int argc, char **argv);
int cmn_tool_checkpoint(int argc, char **argv);
void cmn_tool_check(struct cmn_tool_call *call);
void cmn_tool_bench(struct cmn_tool_call *call);
void cmn_tool_doctor(struct cmn_tool_call *call);

#endif
