/* naive: one allreduce for each tensor, nothing packed. The reference that others are held against.
 *
 * Steps: for every tensor of n floats, MPI_Allreduce over all ranks.
 * Bytes: whatever Open MPI picks for each tensor; 2(N-1)/N * 4n sent per rank by its ring, and one
 * latency per tensor, which is what makes it slow for nets of many small tensors.
 * Source: ChainerMN's communicator of the same name (Akiba, Fukuda, Suzuki, "ChainerMN: Scalable
 * Distributed Deep Learning Framework", 2017). */
#include "communicators/communicator.h"

#include <stdint.h>
#include <stdlib.h>

#include "base/log.h"
#include "transports/transport.h"

struct naive {
    struct cmn_group world;
    void *transport;
};

static const char *refuses_naive(const struct cmn_topology *t, const struct cmn_options *o)
{
    return cmn_mpi.refuses(t, o);
}

static int open_naive(void **self, const struct cmn_topology *t, const struct cmn_options *o)
{
    struct naive *f = calloc(1, sizeof *f);

    if (!f) {
        return cmn_fail("out of memory");
    }
    *self = f;
    f->world = (struct cmn_group){t->world, "world", t, o, SIZE_MAX};
    return cmn_mpi.open(&f->transport, &f->world);
}

static int allreduce_naive(void *self, const struct cmn_exchange *x)
{
    const struct naive *f = self;

    for (int i = 0; i < x->tensors; i++) {
        if (cmn_mpi.allreduce(f->transport, x->tensor[i].data, x->tensor[i].n)) {
            return -1;
        }
    }
    return cmn_mpi.allreduce(f->transport, x->metrics.data, x->metrics.n);
}

static void close_naive(void *self)
{
    struct naive *f = self;

    cmn_mpi.close(f->transport);
    free(f);
}

const struct cmn_communicator cmn_communicator_naive = {
    .name = "naive",
    .cpu = "yes",
    .gpu = "with CUDA-aware MPI (untried)",
    .use = "reference for tests; simple and slow",
    .sums = 1,
    .always = "mpi",
    .refuses = refuses_naive,
    .open = open_naive,
    .allreduce = allreduce_naive,
    .close = close_naive,
};
