/* `darknet cmn …`: programs that need no network. One table feeds dispatch and help. */
#ifndef CMN_TOOLS_H
#define CMN_TOOLS_H

/* Local. Runs argv[2] with the rest; returns the exit status. */
int cmn_tools_run(int argc, char **argv);

struct cmn_tool {
    const char *name;
    const char *arguments;
    const char *help;
    int (*run)(int argc, char **argv);
};

/* Local. Tool i, or NULL after the last. */
const struct cmn_tool *cmn_tool_at(int i);

int cmn_tool_list(int argc, char **argv);
int cmn_tool_man(int argc, char **argv);

#endif
