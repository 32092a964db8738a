#include <stdio.h>
#include <string.h>

#include "communicator.h"
#include "log.h"

extern const struct cmn_communicator cmn_communicator_naive;
extern const struct cmn_communicator cmn_communicator_flat;
extern const struct cmn_communicator cmn_communicator_shm;
extern const struct cmn_communicator cmn_communicator_dummy;

static const struct cmn_communicator *const registry[] = {
    &cmn_communicator_naive,
    &cmn_communicator_flat,
    &cmn_communicator_shm,
    &cmn_communicator_dummy,
};

enum { COMMUNICATORS = sizeof registry / sizeof registry[0] };

const struct cmn_communicator *cmn_communicator_at(int i)
{
    return i >= 0 && i < COMMUNICATORS ? registry[i] : NULL;
}

static const struct cmn_communicator *named(const char *name)
{
    char known[256] = "auto";

    for (int i = 0; i < COMMUNICATORS; i++) {
        if (!strcmp(registry[i]->name, name)) {
            return registry[i];
        }
        snprintf(known + strlen(known), sizeof known - strlen(known), ", %s", registry[i]->name);
    }
    cmn_fail("unknown communicator %s: known are: %s", name, known);
    return NULL;
}

const struct cmn_communicator *cmn_communicator_choose(const struct cmn_topology *t,
                                                       const struct cmn_options *o,
                                                       const char **why)
{
    const struct cmn_communicator *c;
    const char *reason;

    *why = "as asked";
    if (!strcmp(o->communicator, "auto")) {
        *why = t->inter_size > 1 ? "auto: one packed exchange, over all nodes at once"
                                 : "auto: one packed exchange";
        return &cmn_communicator_flat;
    }
    c = named(o->communicator);
    reason = c ? c->refuses(t, o) : NULL;
    if (reason) {
        cmn_fail("communicator %s cannot be used here: %s", c->name, reason);
        return NULL;
    }
    return c;
}
