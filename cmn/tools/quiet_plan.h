/* What a tool asks of a cfg. */
#ifndef CMN_QUIET_PLAN_H
#define CMN_QUIET_PLAN_H

#include "engine/plan.h"
#include "trainer/session.h"

/* What tools count a cfg as, when they split its batch: a training. */
extern const struct cmn_command cmn_tool_training;

/* Collective, blocking. As cmn_plan_cfg, for a training, and without Darknet's table of layers,
 * which goes to the standard error. */
struct cmn_plan cmn_quiet_plan(struct cmn_session *s, const char *cfg);

#endif
