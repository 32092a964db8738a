/* The candidates for summing floats over all ranks: MPI_Allreduce itself, every communicator, and a
 * pass over memory that exchanges nothing. `check` tests whether each works, `bench` measures how
 * fast each is. A failure of MPI, a GPU or memory ends the job. */
#ifndef CMN_CANDIDATE_H
#define CMN_CANDIDATE_H

#include "communicators/communicator.h"
#include "trainer/session.h"

/* The names of the candidates that are not communicators. */
#define CMN_RAW "MPI_Allreduce"
#define CMN_MEMORY "(memory)"

enum { CMN_CANDIDATES = 32 };

struct cmn_candidate {
    const char *name;
    const struct cmn_communicator *c; /* NULL: CMN_RAW or CMN_MEMORY */
    const struct cmn_session *session;
    void *self;        /* the communicator's state */
    float *data;       /* on the GPU if topology.device is not -1 */
    int borrowed;      /* the communicator owns data */
    size_t floats;     /* the most floats to sum */
    float **part;      /* CMN_MEMORY: buffers in data, one for each rank */
    int failed;        /* 1: opening failed; 0: a refusal says that it cannot work here */
    char refusal[256]; /* why it cannot run; "": it can */
};

/* Local. Returns the name of candidate i: MPI_Allreduce, then the communicators, then (memory);
 * NULL after the last one. */
const char *cmn_candidate_name(int i);

/* Collective, blocking. Opens the candidate of that name for up to `floats` floats. If it cannot
 * run, k->refusal says why, with the same text on all ranks. Call cmn_candidate_close() in either
 * case. */
void cmn_candidate_open(struct cmn_candidate *k, const char *name, const struct cmn_session *s,
                        size_t floats);

/* Local. Sets n floats to 0. */
void cmn_candidate_clear(struct cmn_candidate *k, size_t n);

/* Collective, blocking. Sums the first n floats over all ranks. */
void cmn_candidate_run(struct cmn_candidate *k, size_t n);

/* Collective, blocking. Sums n floats whose sum is known. Returns the number of wrong ones on this
 * rank; -1: the candidate does not sum. */
long cmn_candidate_verify(struct cmn_candidate *k, size_t n);

/* Collective. */
void cmn_candidate_close(struct cmn_candidate *k);

#endif
