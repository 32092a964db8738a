/* Reductions over buffers of several ranks in shared memory. Local. Additions follow the order
 * of the buffers, so every rank that computes a sum gets the same bits. */
#ifndef CMN_REDUCE_H
#define CMN_REDUCE_H

#include <stddef.h>

/* `non_temporal`: buffers that other ranks have in their caches are written with non-temporal
 * stores, and must be aligned to 16 bytes. An ordinary store to a line in another core's cache
 * first fetches that line: cheap between cores that share a cache, several times the cost of the
 * whole loop between others. Results do not depend on it. */

/* into[i] = buffer[0][i] + buffer[1][i] + …, for n floats. `into` may be one of the buffers. */
void cmn_reduce(float *into, float *const *buffer, int buffers, int non_temporal, size_t n);

/* The same. buffer[0], which is not `into`, becomes 0. */
void cmn_reduce_away(float *into, float *const *buffer, int buffers, size_t n);

/* Every buffer becomes the sum of all, for n floats; buffer[mine] is in this rank's caches. */
void cmn_reduce_broadcast(float *const *buffer, int buffers, int mine, int non_temporal, size_t n);

/* buffer[mine] becomes the sum of all, and every other one 0, for n floats. */
void cmn_reduce_take(float *const *buffer, int buffers, int mine, int non_temporal, size_t n);

/* The update of a slice of one tensor (struct cmn_sgd). */
struct cmn_sgd_slice {
    float rate, decay, momentum;
    float scale; /* of the sums, with the momentum apart */
    int non_temporal;
    float *average; /* of the weights, which follows them (cmn_follow); NULL: none */
    float part;
};

/* With g the sum of the buffers: u = g + decay * w; w += rate * u. buffer[mine] becomes
 * momentum * u and every other buffer 0, for n floats. The average follows in the same pass. */
void cmn_reduce_sgd(float *weights, float *const *buffer, int buffers, int mine,
                    const struct cmn_sgd_slice *how, size_t n);

/* With the momentum apart: u = scale * sum + velocity + decay * w; w += rate * u; velocity = momentum
 * * u; sum = 0. The average follows in the same pass. */
void cmn_sgd_apart(float *weights, float *velocity, float *sums, const struct cmn_sgd_slice *how,
                   size_t n);

/* The squares of n floats in double; the order of the additions depends on n alone, so ranks with
 * the same floats get the same bits. */
double cmn_sum_of_squares(const float *x, size_t n);

/* The same to about 1e-7 of it, in half the time; the same bits for the same floats, too. Squares
 * that no float holds are summed in double. */
double cmn_sum_of_squares_near(const float *x, size_t n);

/* average[i] += part * (x[i] - average[i]), for n floats. */
void cmn_follow(float *average, const float *x, float part, size_t n);

/* x[i] *= by, for n floats. */
void cmn_scale(float *x, float by, size_t n);

/* Which kind of store is faster here: both are measured now and then. Zeroed before the first
 * call; one for each call site. */
struct cmn_stores {
    unsigned calls;
    double best[2]; /* seconds a float at the last trial: ordinary, non-temporal */
    int non_temporal;
};

/* Whether to use non-temporal stores in this call; after it, the seconds that it took for n
 * floats. */
int cmn_stores_non_temporal(struct cmn_stores *s);
void cmn_stores_took(struct cmn_stores *s, double seconds, size_t n);

#endif
