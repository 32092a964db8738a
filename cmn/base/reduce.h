/* reduce: sums and updates over buffers of several ranks in shared memory. Local.
 *
 * Additions follow the order of the buffers, so every rank that computes a sum gets the same
 * bits. */
#ifndef CMN_REDUCE_H
#define CMN_REDUCE_H

#include <stddef.h>

/* If `non_temporal` is set, buffers that other ranks have in their caches are written with
 * non-temporal stores; buffers must then be aligned to 16 bytes. An ordinary store to a line in
 * another core's cache first fetches that line. That is cheap between cores that share a cache, but
 * between others it costs several times as much as the whole loop. Results do not depend on it. */

/* Computes into[i] = buffer[0][i] + buffer[1][i] + … for n floats. `into` may be one of the
 * buffers. */
void cmn_reduce(float *into, float *const *buffer, int buffers, int non_temporal, size_t n);

/* Does the same with ordinary stores, and zeroes buffer[0], which must not be `into`. */
void cmn_reduce_away(float *into, float *const *buffer, int buffers, size_t n);

/* Sets every buffer to the sum of all buffers, for n floats. buffer[mine] is in this rank's
 * caches. */
void cmn_reduce_broadcast(float *const *buffer, int buffers, int mine, int non_temporal, size_t n);

/* Sets buffer[mine] to the sum of all buffers, and every other buffer to 0, for n floats. */
void cmn_reduce_take(float *const *buffer, int buffers, int mine, int non_temporal, size_t n);

/* How a slice of one tensor is updated (struct cmn_sgd). */
struct cmn_sgd_slice {
    float rate, decay, momentum;
    float scale; /* factor of the sums; only for cmn_sgd_apart() */
    int non_temporal;
    float *average; /* moving average of the weights (cmn_follow); NULL: none */
    float part;     /* of cmn_follow() */
};

/* Updates n weights by SGD with momentum. With g the sum of the buffers: u = g + decay * w; w +=
 * rate * u. Sets buffer[mine] to momentum * u and every other buffer to 0. Updates the average in
 * the same pass. */
void cmn_reduce_sgd(float *weights, float *const *buffer, int buffers, int mine,
                    const struct cmn_sgd_slice *how, size_t n);

/* Updates n weights by SGD with the velocity apart from the sums: u = scale * sum + velocity +
 * decay * w; w += rate * u; velocity = momentum * u; sum = 0. Updates the average in the same
 * pass. */
void cmn_sgd_apart(float *weights, float *velocity, float *sums, const struct cmn_sgd_slice *how,
                   size_t n);

/* Returns the sum of the squares of n floats, in double. The order of the additions depends only on
 * n, so ranks with the same floats get the same bits. */
double cmn_sum_of_squares(const float *x, size_t n);

/* Does the same in half the time, with a relative error of about 1e-7; the same floats give the
 * same bits here, too. Squares beyond the range of a float are summed in double. */
double cmn_sum_of_squares_near(const float *x, size_t n);

/* Computes average[i] += part * (x[i] - average[i]) for n floats. */
void cmn_follow(float *average, const float *x, float part, size_t n);

/* Computes x[i] *= by for n floats. */
void cmn_scale(float *x, float by, size_t n);

/* Which kind of store is faster at one call site: both are measured from time to time. Zeroed
 * before the first call. */
struct cmn_stores {
    unsigned calls;
    double best[2]; /* seconds per float in the last trial: ordinary, non-temporal */
    int non_temporal;
};

/* cmn_stores_non_temporal() returns whether to use non-temporal stores in this call. After the
 * call, cmn_stores_took() records the seconds that it took for n floats. */
int cmn_stores_non_temporal(struct cmn_stores *s);
void cmn_stores_took(struct cmn_stores *s, double seconds, size_t n);

#endif
