/* Bucket tuner: whether gradients are exchanged while backward computes, and how much at once. It
 * measures the first steps with each candidate in turn. The choice changes no result, only time. */
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
    int step; /* of the trial; over when it is `steps` */
    int steps;
    int chosen;
    char why[256];
};

/* Local. What there is to try for a block of `floats`; nothing where the options leave no
 * choice. */
void cmn_bucket_tuner_open(struct cmn_bucket_tuner *t, const struct cmn_options *o, size_t floats);

/* Local. Floats of a bucket in this step; 0: no overlap. */
size_t cmn_bucket_tuner_bucket(const struct cmn_bucket_tuner *t);

/* Collective; blocks at the choice alone. The step took so many seconds on this rank. 1 in the step
 * in which the choice is made (t->why says how), else 0. */
int cmn_bucket_tuner_took(struct cmn_bucket_tuner *t, double seconds,
                          const struct cmn_topology *topology);

#endif
