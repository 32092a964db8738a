/* What can sum floats over all ranks, side by side: each communicator, MPI_Allreduce itself, and the
 * measure of what memory allows. Used by check (does it work?) and bench (how fast is it?). */
#ifndef CMN_CONTEST_H
#define CMN_CONTEST_H

#include "communicators/communicator.h"
#include "trainer/session.h"

/* The names of those that are no communicators. */
#define CMN_RAW "MPI_Allreduce"
#define CMN_MEMORY "(memory)"

struct cmn_benchmark {
    const char *name;
    const struct cmn_communicator *c; /* NULL: CMN_RAW or CMN_MEMORY */
    const struct cmn_session *session;
    void *self;
    float *data; /* `floats` of them, in the communicator's memory where it has some; a GPU's where
                    topology.device is not -1 */
    int data_is_ours;
    float **part; /* CMN_MEMORY: stand in for the ranks' buffers */
    size_t floats;
    char out[256]; /* why it does not take part; empty: it does */
};

/* All return 0, or -1 with a reason, unless another meaning is given. */

/* Collective. `name` is a communicator's, CMN_RAW or CMN_MEMORY. One that refuses, or that cannot be opened, has
 * k->out set, on all ranks, and must not be run. Whatever came of it, it is closed afterwards. */
int cmn_benchmark_open(struct cmn_benchmark *k, const char *name, const struct cmn_session *s,
                       size_t floats);

/* Local. Puts this rank's part of a known sum into the first n floats; exact in any order of addition. */
int cmn_benchmark_fill(struct cmn_benchmark *k, size_t n);

/* Local. The first n floats become 0. */
int cmn_benchmark_clear(struct cmn_benchmark *k, size_t n);

/* Collective, blocking. Sums the first n floats over all ranks. */
int cmn_benchmark_run(struct cmn_benchmark *k, size_t n);

/* Local. *wrong becomes how many of the first n floats are not the sum of what all ranks filled in; -1 when this
 * contestant sums nothing. */
int cmn_benchmark_wrong(const struct cmn_benchmark *k, size_t n, long *wrong);

/* Collective. */
void cmn_benchmark_close(struct cmn_benchmark *k);

#endif
