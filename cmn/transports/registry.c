/* The one list of transports, and the choice of one for the ranks of a node and for the nodes. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "transports/transport.h"

static const struct cmn_transport *const registry[] = {&cmn_shm, &cmn_nccl, &cmn_mpi};

enum { TRANSPORTS = sizeof registry / sizeof registry[0] };

const struct cmn_transport *cmn_transport_intra(const struct cmn_topology *t,
                                                const struct cmn_options *o)
{
    char reasons[512] = "";

    for (int i = 0; i < TRANSPORTS; i++) {
        size_t used = strlen(reasons);
        const char *why;
        if (o->intra == CMN_INTRA_MPI && registry[i] != &cmn_mpi) {
            continue;
        }
        why = registry[i]->refuses(t, o);
        if (!why) {
            return registry[i];
        }
        snprintf(reasons + used, sizeof reasons - used, "%s%s: %s", used ? "; " : "",
                 registry[i]->name, why);
    }
    cmn_fail("no transport connects the ranks of this node (%s)", reasons);
    return NULL;
}

const struct cmn_transport *cmn_transport_inter(const struct cmn_topology *t,
                                                const struct cmn_options *o)
{
    const char *why = cmn_mpi.refuses(t, o);

    /* A CUDA-aware MPI often copies through the host all the same. */
    if (t->device >= 0 && !cmn_nccl.refuses(t, o)) {
        return &cmn_nccl;
    }
    if (!why) {
        return &cmn_mpi;
    }
    cmn_fail("no transport connects the nodes: %s", why);
    return NULL;
}
