/* A transport moves bytes inside one group of ranks. Transports know buffers, never networks. */
#ifndef CMN_TRANSPORT_H
#define CMN_TRANSPORT_H

#include <mpi.h>
#include <stddef.h>

struct cmn_transport {
    const char *name;
    /* Collective over `group`, which must outlive the transport. 0, or -1 with a reason. */
    int (*open)(void **self, MPI_Comm group);
    /* Collective over the group, blocking. Sums n floats in place, at most `chunk` floats a call
     * (0: as many as one call of MPI takes). The caller owns data. n may be 0 and may exceed INT_MAX.
     * The same bits on all ranks. 0, or -1 with a reason. */
    int (*allreduce)(void *self, float *data, size_t n, size_t chunk);
    /* Local. */
    void (*close)(void *self);
};

extern const struct cmn_transport cmn_mpi;

#endif
