/* Loops over floats that lie in several ranks' memory. Local; additions in the order of the parts, so a
 * result has the same bits wherever and however often it is computed. */
#ifndef CMN_SUMS_H
#define CMN_SUMS_H

#include <stddef.h>

/* `past`: what others have in their caches is written past the caches (and must be aligned to 16 bytes). To
 * overwrite a line of another core's cache, a processor first fetches it and takes it away there: cheap between
 * cores of one cache, several times the cost of the whole loop between others. Results do not depend on it. */

/* into[i] = part[0][i] + part[1][i] + …, for n floats. `into` may be one of the parts. */
void cmn_reduce(float *into, float *const *part, int parts, int past, size_t n);

/* Copies n floats to memory that another rank will read next. */
void cmn_store(float *to, const float *from, int past, size_t n);

/* Every part becomes the sum of all, for n floats; part[mine] lies in this rank's caches. */
void cmn_reduce_broadcast(float *const *part, int parts, int mine, int past, size_t n);

/* A slice of one tensor in an update (struct cmn_sgd). */
struct cmn_sgd_slice {
    float rate, decay, momentum;
    int past;
};

/* With g the sum of the parts: u = g + decay * w; w += rate * u; part[mine] becomes momentum * u and every other part
 * 0, for n floats. */
void cmn_reduce_sgd(float *weights, float *const *part, int parts, int mine,
                    const struct cmn_sgd_slice *how, size_t n);

/* Which stores are faster here, found out by trying both now and then. Zeroed at the beginning; for calls of one
 * kind. */
struct cmn_stores {
    unsigned calls;
    double best[2]; /* seconds a float, in caches and past them, at the last trial */
    int past;
};

/* Whether to write past the caches in this call; after it, what it took for n floats. */
int cmn_stores_non_temporal(struct cmn_stores *s);
void cmn_stores_took(struct cmn_stores *s, double seconds, size_t n);

#endif
