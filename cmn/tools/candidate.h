/* A candidate for summing floats over all ranks: a communicator, MPI_Allreduce itself, or the
 * limit that memory sets. `check` asks whether each works, `bench` how fast each is. Functions end
 * the job when MPI, a GPU or memory fails. */
#ifndef CMN_CANDIDATE_H
#define CMN_CANDIDATE_H

#include "communicators/communicator.h"
#include "trainer/session.h"

/* Names of the candidates that are no communicators. */
#define CMN_RAW "MPI_Allreduce"
#define CMN_MEMORY "(memory)"

struct cmn_candidate {
    const char *name;
    const struct cmn_communicator *c; /* NULL: CMN_RAW or CMN_MEMORY */
    const struct cmn_session *session;
    void *self;    /* the communicator's */
    float *data;   /* `floats` of them; on the GPU where topology.device is not -1 */
    int owns_data; /* 0: the memory is the communicator's */
    float **part;  /* CMN_MEMORY: buffers of this rank that stand for all ranks' buffers */
    size_t floats;
    char refusal[256]; /* why it cannot run here; "": it can */
};

/* Collective, blocking. `name` is a communicator's, CMN_RAW or CMN_MEMORY. Sets k->refusal, equal
 * on all ranks, where it refuses or cannot be opened: it must not be run then. Close it in either
 * case. */
void cmn_candidate_open(struct cmn_candidate *k, const char *name, const struct cmn_session *s,
                        size_t floats);

/* Local. Writes this rank's summand of a known sum, exact in any order of addition, into n
 * floats. */
void cmn_candidate_fill(struct cmn_candidate *k, size_t n);

/* Local. Sets n floats to 0. */
void cmn_candidate_clear(struct cmn_candidate *k, size_t n);

/* Collective, blocking. Sums the first n floats over all ranks. */
void cmn_candidate_run(struct cmn_candidate *k, size_t n);

/* Local. Returns how many of the first n floats differ from the sum of what the ranks filled in;
 * -1: this candidate sums nothing. */
long cmn_candidate_wrong(const struct cmn_candidate *k, size_t n);

/* Collective. */
void cmn_candidate_close(struct cmn_candidate *k);

#endif
