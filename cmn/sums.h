/* Loops over floats that lie in several ranks' memory. Local; additions in the order of the parts, so a
 * result has the same bits wherever and however often it is computed. */
#ifndef CMN_SUMS_H
#define CMN_SUMS_H

#include <stddef.h>

/* into[i] = part[0][i] + part[1][i] + …, for n floats. `into` may be one of the parts; if it is
 * not this rank's own (`mine` 0), it is aligned to 16 bytes. */
void cmn_sum(float *into, float *const *part, int parts, int mine, size_t n);

/* Copies n floats to memory that another rank will read next. `to` is aligned to 16 bytes. */
void cmn_give(float *to, const float *from, size_t n);

/* Every part becomes the sum of all, for n floats. Parts are aligned to 16 bytes; part[mine] lies in this rank's
 * caches rather than in others'. */
void cmn_sum_everywhere(float *const *part, int parts, int mine, size_t n);

/* A slice of one tensor in an update (struct cmn_sgd). */
struct cmn_sgd_slice {
    float rate, decay, momentum;
    int alone; /* one part, and nobody else uses the weights */
};

/* With g the sum of the parts: u = g + decay * w; w += rate * u; part[mine] becomes momentum * u and every other part
 * 0, for n floats. Parts and weights are aligned to 16 bytes. */
void cmn_sum_and_step(float *weights, float *const *part, int parts, int mine,
                      const struct cmn_sgd_slice *how, size_t n);

#endif
