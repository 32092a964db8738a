/* A communicator turns every rank's gradients into their sum over all ranks.
 *
 * Communicators know buffers and groups, never layers. Each is one file in communicators/ and one
 * line in communicators/registry.c, which feeds the choice, `darknet cmn list`, docs and tests. */
#ifndef CMN_COMMUNICATOR_H
#define CMN_COMMUNICATOR_H

#include <stddef.h>

#include "options.h"
#include "topology.h"

/* n floats at data. */
struct cmn_span {
    float *data;
    size_t n;
};

/* What is exchanged in a step: the gradients one by one, and the block in which all of them lie.
 * The block may hold padding between tensors; padding is zero on every rank. The tally, a few
 * exact sums, starts where the block ends: it may travel with the block, but never through a lossy
 * codec. The memory is the caller's and the same in every call. */
struct cmn_exchange {
    const struct cmn_span *tensor;
    int tensors;
    struct cmn_span block;
    struct cmn_span tally;
};

struct cmn_communicator {
    const char *name;
    const char *cpu, *gpu; /* "yes", or why not */
    const char *use;       /* when to use it */
    int sums;              /* 0: ranks are left different (dummy) */

    /* Collective, before the network is built. *self is handed to the other two; t and o must outlive
     * it. 0, or -1 with a reason. */
    int (*open)(void **self, const struct cmn_topology *t, const struct cmn_options *o);
    /* Collective, blocking, called in the same order everywhere. Replaces every tensor, and the
     * tally, by its sum over all ranks; the same bits on all ranks. 0, or -1 with a reason. */
    int (*allreduce)(void *self, const struct cmn_exchange *x);
    /* Local. */
    void (*close)(void *self);
};

/* Local. All communicators: cmn_communicator_at(0) … until NULL. */
const struct cmn_communicator *cmn_communicator_at(int i);

/* Local. The communicator of that name; `auto` is resolved from the topology and *why says how.
 * NULL with a reason when there is none. */
const struct cmn_communicator *cmn_communicator_choose(const char *name,
                                                       const struct cmn_topology *t,
                                                       const char **why);

#endif
