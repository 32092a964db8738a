/* Which ways of exchanging gradients do not go together, and what the one that was chosen is called. */
#include <stdio.h>

#include "compression/compressor.h"
#include "optimizers/lars.h"
#include "base/log.h"
#include "optimizers/update_policy.h"

/* Skipping a step needs a gradient that is apart from the momentum, and that nobody has begun to send. */
static int refuse_skip(const struct cmn_policy *s)
{
    const char *why = s->topology->device >= 0
                          ? "on GPUs the momentum lies among the gradients and would be lost"
                      : s->local > 1 ? "with cmn_local_steps each rank updates by itself"
                                     : NULL;

    if (why) {
        return cmn_fail("cmn_nonfinite=skip: %s: use stop", why);
    }
    if (s->options->overlap == CMN_OVERLAP_ON && s->topology->size > 1) {
        return cmn_fail("cmn_overlap=on does not go with cmn_nonfinite=skip, which decides before "
                        "anything is exchanged: leave one of them away");
    }
    return 0;
}

int cmn_policy_refuse(const struct cmn_policy *s, const char *why)
{
    const struct cmn_options *o = s->options;

    if (s->adam && (s->delayed || s->local > 1)) {
        return cmn_fail("adam=1 in the cfg does not go with %s, which knows momentum alone",
                        s->delayed ? "cmn_double_buffering" : "cmn_local_steps");
    }
    if (o->lars > 0 && !s->separate_momentum) {
        return cmn_lars_refuse(o->lars, s->adam, s->local);
    }
    if (o->overlap == CMN_OVERLAP_ON && s->topology->size > 1 && why) {
        return cmn_fail("cmn_overlap=on: communicator %s: %s", s->communicator.name, why);
    }
    if (o->overlap == CMN_OVERLAP_ON && (s->local > 1 || s->delayed)) {
        return cmn_fail("cmn_overlap=on: with %s nothing is left to be exchanged during backward",
                        s->delayed ? "cmn_double_buffering" : "cmn_local_steps");
    }
    return o->nonfinite == CMN_NONFINITE_SKIP ? refuse_skip(s) : 0;
}

void cmn_policy_describe(const struct cmn_policy *s, char *text, size_t bytes)
{
    const struct cmn_options *o = s->options;
    int used = 0;

    text[0] = '\0';
    if (o->compress == CMN_COMPRESS_TOPK) {
        used = snprintf(text, bytes, ", topk %g %%", 100 * o->compress_ratio);
    } else if (o->compress == CMN_COMPRESS_POWERSGD) {
        used = snprintf(text, bytes, ", powersgd of rank %ld", o->compress_rank);
    }
    if (o->lars > 0) {
        used += snprintf(text + used, bytes - (size_t)used, ", LARS %g", o->lars);
    }
    if (s->local > 1) {
        used += snprintf(text + used, bytes - (size_t)used, ", averaged every %ld steps", s->local);
    }
    if (s->delayed) {
        used += snprintf(text + used, bytes - (size_t)used, ", double buffering");
    } else if (s->communicator.begin && s->local == 1 && s->topology->size > 1) {
        snprintf(text + used, bytes - (size_t)used, ", overlap %s",
                 s->tuner.steps       ? "to be measured"
                 : s->tuner.bucket[0] ? "on"
                                      : "off");
    }
}
