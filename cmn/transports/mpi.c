#include <stdlib.h>

#include "log.h"
#include "topology.h"
#include "transports/transport.h"

struct mpi {
    MPI_Comm group;
};

static int open_mpi(void **self, MPI_Comm group)
{
    struct mpi *m = malloc(sizeof *m);

    if (!m) {
        return cmn_fail("mpi: out of memory");
    }
    m->group = group;
    *self = m;
    return 0;
}

static int allreduce_mpi(void *self, float *data, size_t n, size_t chunk)
{
    const struct mpi *m = self;

    if (chunk == 0 || chunk > CMN_MPI_PIECE) {
        chunk = CMN_MPI_PIECE;
    }
    for (size_t at = 0; at < n; at += chunk) {
        size_t count = n - at < chunk ? n - at : chunk;
        int code = MPI_Allreduce(MPI_IN_PLACE, data + at, (int)count, MPI_FLOAT, MPI_SUM, m->group);
        if (cmn_mpi_check(code, "MPI_Allreduce")) {
            return cmn_fail_in("mpi: sum of %zu floats at %zu of %zu", count, at, n);
        }
    }
    return 0;
}

static void close_mpi(void *self)
{
    free(self);
}

const struct cmn_transport cmn_mpi = {
    .name = "mpi",
    .open = open_mpi,
    .allreduce = allreduce_mpi,
    .close = close_mpi,
};
