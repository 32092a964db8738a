/* The candidates for summing floats over all ranks: MPI_Allreduce itself, every communicator, and a
 * pass over memory that exchanges nothing. `check` asks whether each works, `bench` how fast each
 * is. A failure of MPI, a GPU or memory ends the job. */
#ifndef CMN_CANDIDATE_H
#define CMN_CANDIDATE_H

#include "communicators/communicator.h"
#include "trainer/session.h"

/* The names of those that are no communicators. */
#define CMN_RAW "MPI_Allreduce"
#define CMN_MEMORY "(memory)"

enum { CMN_CANDIDATES = 32 };

struct cmn_candidate {
    const char *name;
    const struct cmn_communicator *c; /* NULL: CMN_RAW or CMN_MEMORY */
    const struct cmn_session *session;
    void *self;   /* the communicator's */
    float *data;  /* `floats` of them; on the GPU where topology.device is not -1 */
    int borrowed; /* the memory is the communicator's */
    size_t floats;
    float **part;      /* CMN_MEMORY: buffers in data that stand for all ranks' buffers */
    int failed;        /* the refusal says what went wrong, and not that it cannot work here */
    char refusal[256]; /* why it cannot run; "": it can */
};

/* Local. The name of candidate i: MPI_Allreduce, the communicators, (memory); NULL behind them. */
const char *cmn_candidate_name(int i);

/* Collective, blocking. Opens the candidate of that name for up to `floats` floats. Sets
 * k->refusal, equal on all ranks, where it cannot run. Close it in either case. */
void cmn_candidate_open(struct cmn_candidate *k, const char *name, const struct cmn_session *s,
                        size_t floats);

/* Local. Sets n floats to 0. */
void cmn_candidate_clear(struct cmn_candidate *k, size_t n);

/* Collective, blocking. Sums the first n floats over all ranks. */
void cmn_candidate_run(struct cmn_candidate *k, size_t n);

/* Collective, blocking. Sums n floats whose sum is known. Returns how many of them are wrong on this
 * rank; -1: the candidate sums nothing. */
long cmn_candidate_verify(struct cmn_candidate *k, size_t n);

/* Collective. */
void cmn_candidate_close(struct cmn_candidate *k);

#endif
