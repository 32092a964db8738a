/* The table of tools: it feeds dispatch, help, `darknet cmn list` and what is made from that. */
#ifndef CMN_TOOLS_H
#define CMN_TOOLS_H

#include "tools/tool.h"

/* Local. The tool that argv[2] names; NULL, with a message on standard error, when it names
 * none. */
const struct cmn_tool *cmn_tool_find(int argc, char **argv);

/* Collective, blocking. Ends the job when a rank's arguments or keys differ from rank 0's: a tool
 * does what they say, and ranks with different ones would wait for each other. */
void cmn_tool_compare(int argc, char **argv, const struct cmn_session *s);

/* Local. Runs a tool that has `run`. Returns its exit status, or 1 when its output cannot be
 * written. */
int cmn_tool_run(const struct cmn_tool *tool, int argc, char **argv);

/* Collective. Runs a tool that has `job`. Ends the job when its output cannot be written. */
void cmn_tool_run_job(const struct cmn_tool *tool, struct cmn_tool_call *call);

#endif
