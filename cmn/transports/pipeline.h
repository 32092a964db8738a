/* The rounds of pairwise.c, and their messages: for pairwise.c alone.
 *
 * A round is a chunk of each owner's slice: what the other ranks send to that owner, and get back from it. */
#ifndef CMN_PIPELINE_H
#define CMN_PIPELINE_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

#include "transports/pairwise.h"

/* Rounds under way. Among many ranks fewer rounds make as many messages, and each takes memory for all. */
enum { CMN_SLOTS = 48, CMN_SLOTS_LEAST = 2, CMN_MESSAGES = 192 };

/* Messages of one round, one way. */
struct cmn_pipeline_step {
    MPI_Request *request;
    int *peer; /* who sends; -1 for what this rank sends */
    int requests;
};

struct cmn_pairwise_entry {
    struct cmn_pairwise_job is;
    long first, rounds; /* numbers of rounds since open */
};

struct cmn_pairwise {
    MPI_Comm comm;
    int rank, ranks, slots;
    size_t chunk;
    long timeout;            /* seconds, 0: for ever */
    float *stage[CMN_SLOTS]; /* room for a chunk from every other rank */
    /* 16 bits: chunks to every other rank and from it; the sum, and those of the others. Made when first needed. */
    uint16_t *narrow[CMN_SLOTS], *narrow_back[CMN_SLOTS];
    float **part;
    struct cmn_pipeline_step scatter[CMN_SLOTS], gather[CMN_SLOTS];

    /* A ring of `room`: those from `ended` to `begun` are not done. */
    struct cmn_pairwise_entry *job;
    long room, ended, begun;
    long started, summed, over; /* rounds, counted since open: sent, added, returned */
    long known;                 /* rounds of all jobs begun */
    unsigned long long sent;
};

/* Local. The jobs are numbered since open. */
struct cmn_pairwise_entry *cmn_pairwise_entry(const struct cmn_pairwise *p, long i);

/* Local. How many rounds a job takes. */
long cmn_pipeline_of(const struct cmn_pairwise *p, const struct cmn_pairwise_job *job);

/* Local. Whether all messages of f have arrived; -1 with a reason. */
int cmn_pipeline_landed(struct cmn_pipeline_step *f);

/* Local, for round `number` (counted since open), in this order: sends this rank's chunks to their owners; once all have
 * arrived, adds what came of this rank's own; sends it to the others; once all sums have arrived, makes 32 bits of them.
 * 0, or -1 with a reason. */
int cmn_pipeline_scatter(struct cmn_pairwise *p, long number);
void cmn_pipeline_sum(struct cmn_pairwise *p, long number);
int cmn_pipeline_gather(struct cmn_pairwise *p, long number);
void cmn_pipeline_widen(struct cmn_pairwise *p, long number);

#endif
