/* Arithmetic of matrices that are nearly of low rank. Local. The order of additions does not depend
 * on the processor, so all ranks of a job get the same bits from the same numbers. Libraries that
 * choose their loops by the processor do not guarantee that. */
#ifndef CMN_LOWRANK_H
#define CMN_LOWRANK_H

#include <stddef.h>

/* A row-major matrix m of rows × columns is approximated by the sum of p_j q_j^T, with `rank`
 * columns p_j of `rows` floats each and as many columns q_j of `columns` floats each. The columns
 * of p and of q are stored one after the other. */
struct cmn_lowrank {
    size_t rows, columns, rank;
};

/* m += fresh; p = m q. */
void cmn_lowrank_left(const struct cmn_lowrank *s, float *m, const float *fresh, const float *q,
                      float *p);

/* Makes the columns of p, which must be finite, orthonormal. A column that depends linearly on the
 * columns before it becomes zero. */
void cmn_lowrank_orthonormal(const struct cmn_lowrank *s, float *p);

/* q = m^T p. */
void cmn_lowrank_right(const struct cmn_lowrank *s, const float *m, const float *p, float *q);

/* m -= p own^T; sum = p q^T. */
void cmn_lowrank_take(const struct cmn_lowrank *s, float *m, float *sum, const float *p,
                      const float *own, const float *q);

/* Prepares q for the next step: scales each column to length 1, and replaces a zero column by
 * random numbers that follow from `seed`. q must be finite. */
void cmn_lowrank_next(const struct cmn_lowrank *s, float *q, unsigned long long seed);

/* Returns whether all n floats are finite. */
int cmn_lowrank_finite(const float *x, size_t n);

#endif
