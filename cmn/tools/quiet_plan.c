#include "tools/quiet_plan.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

const struct cmn_command cmn_tool_training = {"a",           "cfg",       CMN_TRAINS,
                                              CMN_NO_ANSWER, CMN_IN_BOTH, ""};

struct cmn_plan cmn_quiet_plan(struct cmn_session *s, const char *cfg)
{
    const struct cmn_command *command = s->command;
    int saved = dup(STDERR_FILENO), null = open("/dev/null", O_WRONLY);
    struct cmn_plan plan;

    fflush(stderr);
    if (saved >= 0 && null >= 0) {
        dup2(null, STDERR_FILENO);
    }
    s->command = &cmn_tool_training; /* batches are split as a training splits them */
    plan = cmn_plan_cfg(cfg);
    s->command = command;
    fflush(stderr);
    if (saved >= 0 && null >= 0) {
        dup2(saved, STDERR_FILENO);
    }
    close(saved);
    close(null);
    return plan;
}
