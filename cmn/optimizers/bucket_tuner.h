/* Bucket tuner: chooses whether gradients are exchanged while backward computes, and in buckets of
 * which size. It times the first steps of a training with each candidate in turn. The choice
 * changes the time of a step, but no result. */
#ifndef CMN_BUCKET_TUNER_H
#define CMN_BUCKET_TUNER_H

#include <stddef.h>

#include "config/options.h"
#include "mpi/topology.h"

enum { CMN_BUCKET_TUNER_MOST = 4, CMN_BUCKET_TUNER_ROUNDS = 5, CMN_BUCKET_TUNER_WARMUP = 3 };

struct cmn_bucket_tuner {
    size_t bucket[CMN_BUCKET_TUNER_MOST]; /* floats; 0: no overlap */
    int candidates;
    double seconds[CMN_BUCKET_TUNER_MOST][CMN_BUCKET_TUNER_ROUNDS];
    int step; /* number of the step; the trial is over when it reaches `steps` */
    int steps;
    int chosen;
    char why[256];
};

/* Local. Lists the candidates for a block of `floats` floats; there is no trial if the options
 * leave no choice. */
void cmn_bucket_tuner_open(struct cmn_bucket_tuner *t, const struct cmn_options *o, size_t floats);

/* Local. Returns the floats of a bucket in the current step; 0: no overlap. */
size_t cmn_bucket_tuner_bucket(const struct cmn_bucket_tuner *t);

/* Collective; blocks only in the step in which the choice is made. `seconds` is how long the step
 * took on this rank. Returns 1 in that step (t->why explains the choice), else 0. */
int cmn_bucket_tuner_took(struct cmn_bucket_tuner *t, double seconds,
                          const struct cmn_topology *topology);

#endif
