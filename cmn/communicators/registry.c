/* The list of communicators: selection, `darknet cmn list`, docs and tests use it. */
#include <string.h>

#include "communicators/communicator.h"

extern const struct cmn_communicator cmn_communicator_naive;
extern const struct cmn_communicator cmn_communicator_flat;
extern const struct cmn_communicator cmn_communicator_hierarchical;
extern const struct cmn_communicator cmn_communicator_two_dimensional;
extern const struct cmn_communicator cmn_communicator_single_node;
extern const struct cmn_communicator cmn_communicator_shm;
extern const struct cmn_communicator cmn_communicator_pure_nccl;
extern const struct cmn_communicator cmn_communicator_non_cuda_aware;
extern const struct cmn_communicator cmn_communicator_dummy;

static const struct cmn_communicator *const registry[] = {
    &cmn_communicator_naive,        &cmn_communicator_flat,
    &cmn_communicator_hierarchical, &cmn_communicator_two_dimensional,
    &cmn_communicator_single_node,  &cmn_communicator_shm,
    &cmn_communicator_pure_nccl,    &cmn_communicator_non_cuda_aware,
    &cmn_communicator_dummy,
};

enum { COMMUNICATORS = sizeof registry / sizeof registry[0] };

const struct cmn_communicator *cmn_communicator_at(int i)
{
    return i >= 0 && i < COMMUNICATORS ? registry[i] : NULL;
}

const struct cmn_communicator *cmn_communicator_find(const char *name)
{
    for (int i = 0; i < COMMUNICATORS; i++) {
        if (!strcmp(registry[i]->name, name)) {
            return registry[i];
        }
    }
    return NULL;
}
