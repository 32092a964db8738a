#include <stdio.h>
#include <string.h>

#include "communicator.h"
#include "log.h"

extern const struct cmn_communicator cmn_communicator_naive;
extern const struct cmn_communicator cmn_communicator_flat;
extern const struct cmn_communicator cmn_communicator_dummy;

static const struct cmn_communicator *const registry[] = {
    &cmn_communicator_naive,
    &cmn_communicator_flat,
    &cmn_communicator_dummy,
};

enum { COMMUNICATORS = sizeof registry / sizeof registry[0] };

const struct cmn_communicator *cmn_communicator_at(int i)
{
    return i >= 0 && i < COMMUNICATORS ? registry[i] : NULL;
}

const struct cmn_communicator *cmn_communicator_choose(const char *name,
                                                       const struct cmn_topology *t,
                                                       const char **why)
{
    char known[256] = "auto";

    *why = "as asked";
    if (!strcmp(name, "auto")) {
        *why = t->inter_size > 1 ? "auto: one packed exchange, over all nodes at once"
                                 : "auto: one packed exchange";
        return &cmn_communicator_flat;
    }
    for (int i = 0; i < COMMUNICATORS; i++) {
        if (!strcmp(registry[i]->name, name)) {
            return registry[i];
        }
        snprintf(known + strlen(known), sizeof known - strlen(known), ", %s", registry[i]->name);
    }
    cmn_fail("unknown communicator %s: known are: %s", name, known);
    return NULL;
}
