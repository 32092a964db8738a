/* Arithmetic of matrices that are nearly of low rank. Local. The order of additions does not
 * depend on the processor: all ranks of a job get the same bits from the same numbers. Libraries
 * that choose their loops by the processor do not promise that. */
#ifndef CMN_LOWRANK_H
#define CMN_LOWRANK_H

#include <stddef.h>

/* A matrix of rows × columns at m, row by row, is approximated by the sum of p_j q_j^T: `rank`
 * columns p, each of `rows` floats, and as many q, each of `columns` floats. Columns lie one
 * behind the other. */
struct cmn_lowrank {
    size_t rows, columns, rank;
};

/* m += fresh; p = m q. */
void cmn_lowrank_left(const struct cmn_lowrank *s, float *m, const float *fresh, const float *q,
                      float *p);

/* p, which must be finite, becomes orthonormal; a column that depends on others becomes zero. */
void cmn_lowrank_orthonormal(const struct cmn_lowrank *s, float *p);

/* q = m^T p. */
void cmn_lowrank_right(const struct cmn_lowrank *s, const float *m, const float *p, float *q);

/* m -= p own^T; sum = p q^T. */
void cmn_lowrank_take(const struct cmn_lowrank *s, float *m, float *sum, const float *p,
                      const float *own, const float *q);

/* Makes q ready for the next step: each column gets length 1, and one that is zero becomes random
 * numbers by `seed`. q must be finite. */
void cmn_lowrank_next(const struct cmn_lowrank *s, float *q, unsigned long long seed);

/* Whether all of n floats are finite. */
int cmn_lowrank_finite(const float *x, size_t n);

#endif
