/* Finds and runs tools. Dispatch, help and `darknet cmn list` use one table of tools. */
#ifndef CMN_TOOLS_H
#define CMN_TOOLS_H

#include "tools/tool.h"

/* Local. Returns the tool that argv[2] names, or `help` if the last argument is -h or --help; NULL,
 * with a message on standard error from rank 0, if there is no such tool. */
const struct cmn_tool *cmn_tool_find(int argc, char **argv);

/* Collective, blocking. Ends the job if a rank's arguments or keys differ from rank 0's: ranks that
 * do different things would wait for each other. */
void cmn_tool_compare(int argc, char **argv, const struct cmn_session *s);

/* Local. Runs a tool that has `run`. Returns its exit status, or 1 if its output cannot be
 * written. */
int cmn_tool_run(const struct cmn_tool *tool, int argc, char **argv);

/* Collective. Runs a tool that has `job`. Ends the job if its output cannot be written. */
void cmn_tool_run_job(const struct cmn_tool *tool, struct cmn_tool_call *call);

#endif
