/* A tool, `darknet cmn NAME`: a program that trains nothing. Each tool is one file; tools.c lists
 * them. */
#ifndef CMN_TOOL_H
#define CMN_TOOL_H

#include "trainer/session.h"

/* What a tool that needs the job is given. */
struct cmn_tool_call {
    struct cmn_session *session;
    int argc; /* without the -cmn_KEY arguments; argv[0] is the tool's name */
    char **argv;
    int status; /* becomes the exit status; the tool makes it equal on all ranks */
};

struct cmn_tool {
    const char *name;
    const char *arguments;
    const char *help;
    /* One of the two. run: local, without MPI; returns the exit status. argv[0] is the tool's
     * name. job: collective, with MPI up and this rank's place known; ends the job when something
     * fails. */
    int (*run)(int argc, char **argv);
    void (*job)(struct cmn_tool_call *call);
    int copies; /* 1: also where each process of a launcher is a job of its own */
};

/* Local. `tool` is the table, of `tools` rows. */
int cmn_tool_list(int argc, char **argv, const struct cmn_tool *tool, int tools);
/* Local. Prints the keys in their groups. */
void cmn_tool_list_keys(void);
int cmn_tool_chart(int argc, char **argv);
int cmn_tool_checkpoint(int argc, char **argv);
void cmn_tool_check(struct cmn_tool_call *call);
void cmn_tool_bench(struct cmn_tool_call *call);
void cmn_tool_doctor(struct cmn_tool_call *call);

#endif
