#include "compression/lowrank.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/simd.h"

/* Vectors of LANES floats give sums over a row one order of additions with any instruction set. */
enum { LANES = 8 };
typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));

/* Rows and columns per inner loop; TILE is the columns of m whose part of q fits the first-level
 * cache. */
enum { ROWS = 4, COLUMNS = 4, TOGETHER = 2, TILE = 512 };

/* If subtracting the other columns leaves less than this of a column, relative to its length, the
 * rest is rounding error. */
static const double DEPENDENT = 1e-5;

/* ---- p = m q ---- */

/* Loads up to LANES floats of a row, and zeros behind its end. It is a macro, because how a vector
 * is passed to a function depends on the instruction set. */
#define LOAD(to, row, at, end)                                           \
    do {                                                                 \
        if ((end) - (at) >= LANES) {                                     \
            memcpy(&(to), (row) + (at), sizeof(to));                     \
        } else {                                                         \
            (to) = (lanes){0};                                           \
            memcpy(&(to), (row) + (at), ((end) - (at)) * sizeof(float)); \
        }                                                                \
    } while (0)

static float across(const float *lane)
{
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) +
           ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

/* Computes the dot products of ROWS rows with TOGETHER columns, all of n floats. */
CMN_VECTORS static void products(const float *const *row, const float *const *column, size_t n,
                                 float out[ROWS][TOGETHER])
{
    lanes sum[ROWS][TOGETHER] = {{{0}}}, x[TOGETHER], y;

    for (size_t at = 0; at < n; at += LANES) {
        for (int j = 0; j < TOGETHER; j++) {
            LOAD(x[j], column[j], at, n);
        }
        for (int i = 0; i < ROWS; i++) {
            LOAD(y, row[i], at, n);
            for (int j = 0; j < TOGETHER; j++) {
                sum[i][j] += y * x[j];
            }
        }
    }
    for (int i = 0; i < ROWS; i++) {
        for (int j = 0; j < TOGETHER; j++) {
            float lane[LANES];
            memcpy(lane, &sum[i][j], sizeof lane);
            out[i][j] = across(lane);
        }
    }
}

CMN_VECTORS static void add(float *restrict m, const float *restrict fresh, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        m[i] += fresh[i];
    }
}

void cmn_lowrank_left(const struct cmn_lowrank *s, float *m, const float *fresh, const float *q,
                      float *p)
{
    for (size_t i = 0; i < s->rows; i += ROWS) {
        const float *row[ROWS], *column[TOGETHER];
        size_t rows = s->rows - i < ROWS ? s->rows - i : ROWS;
        float out[ROWS][TOGETHER];
        add(m + i * s->columns, fresh + i * s->columns, rows * s->columns);
        /* Missing rows and columns are replaced by the last one; their products are not stored. */
        for (size_t k = 0; k < ROWS; k++) {
            row[k] = m + (i + (k < rows ? k : rows - 1)) * s->columns;
        }
        for (size_t j = 0; j < s->rank; j += TOGETHER) {
            size_t count = s->rank - j < TOGETHER ? s->rank - j : TOGETHER;
            for (size_t k = 0; k < TOGETHER; k++) {
                column[k] = q + (j + (k < count ? k : count - 1)) * s->columns;
            }
            products(row, column, s->columns, out);
            for (size_t k = 0; k < rows * count; k++) {
                p[(j + k % count) * s->rows + i + k / count] = out[k / count][k % count];
            }
        }
    }
}

/* ---- orthonormal columns ---- */

static double product(const float *a, const float *b, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++) {
        sum += (double)a[i] * (double)b[i];
    }
    return sum;
}

static void scale(float *x, size_t n, double by)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = (float)(x[i] * by);
    }
}

void cmn_lowrank_orthonormal(const struct cmn_lowrank *s, float *p)
{
    for (size_t j = 0; j < s->rank; j++) {
        float *x = p + j * s->rows;
        double before = sqrt(product(x, x, s->rows)), after;
        scale(x, s->rows, before > 0 ? 1 / before : 0);
        /* Two passes: the second one removes what rounding left in the first. */
        for (size_t i = 0; i < 2 * j; i++) {
            const float *y = p + i % j * s->rows;
            double along = product(x, y, s->rows);
            for (size_t k = 0; k < s->rows; k++) {
                x[k] = (float)(x[k] - along * y[k]);
            }
        }
        after = sqrt(product(x, x, s->rows));
        scale(x, s->rows, after > DEPENDENT ? 1 / after : 0);
    }
}

/* ---- q = m^T p ---- */

/* Adds ROWS rows, row k times by[k], to q. */
CMN_VECTORS static void add_rows(float *restrict q, const float *const *row, const float *by,
                                 size_t n)
{
    const float *restrict a = row[0], *restrict b = row[1], *restrict c = row[2],
                          *restrict d = row[3];

    for (size_t i = 0; i < n; i++) {
        q[i] = (((q[i] + by[0] * a[i]) + by[1] * b[i]) + by[2] * c[i]) + by[3] * d[i];
    }
}

void cmn_lowrank_right(const struct cmn_lowrank *s, const float *m, const float *p, float *q)
{
    memset(q, 0, s->rank * s->columns * sizeof *q);
    for (size_t at = 0; at < s->columns; at += TILE) {
        size_t width = s->columns - at < TILE ? s->columns - at : TILE;
        for (size_t i = 0; i < s->rows; i += ROWS) {
            size_t rows = s->rows - i < ROWS ? s->rows - i : ROWS;
            const float *row[ROWS];
            for (size_t k = 0; k < ROWS; k++) {
                row[k] = m + (i + (k < rows ? k : 0)) * s->columns + at;
            }
            for (size_t j = 0; j < s->rank; j++) {
                float by[ROWS] = {0};
                memcpy(by, p + j * s->rows + i, rows * sizeof *by);
                add_rows(q + j * s->columns + at, row, by, width);
            }
        }
    }
}

/* ---- m -= p own^T, sum = p q^T ---- */

/* Does one row with COLUMNS columns of own and q, column j times by[j]. With `first` it overwrites
 * sum, otherwise it adds to it. */
CMN_VECTORS static void take_columns(float *restrict m, float *restrict sum,
                                     const float *const *own, const float *const *q,
                                     const float *by, int first, size_t n)
{
    const float *restrict a = own[0], *restrict b = own[1], *restrict c = own[2],
                          *restrict d = own[3];
    const float *restrict e = q[0], *restrict f = q[1], *restrict g = q[2], *restrict h = q[3];
    const float by_a = by[0], by_b = by[1], by_c = by[2], by_d = by[3];

    for (size_t i = 0; i < n; i++) {
        m[i] -= ((by_a * a[i] + by_b * b[i]) + by_c * c[i]) + by_d * d[i];
    }
    if (first) {
        for (size_t i = 0; i < n; i++) {
            sum[i] = ((by_a * e[i] + by_b * f[i]) + by_c * g[i]) + by_d * h[i];
        }
        return;
    }
    for (size_t i = 0; i < n; i++) {
        sum[i] += ((by_a * e[i] + by_b * f[i]) + by_c * g[i]) + by_d * h[i];
    }
}

void cmn_lowrank_take(const struct cmn_lowrank *s, float *m, float *sum, const float *p,
                      const float *own, const float *q)
{
    for (size_t at = 0; at < s->columns; at += TILE) {
        size_t width = s->columns - at < TILE ? s->columns - at : TILE;
        for (size_t j = 0; j < s->rank; j += COLUMNS) {
            const float *mine[COLUMNS], *all[COLUMNS];
            size_t columns = s->rank - j < COLUMNS ? s->rank - j : COLUMNS;
            /* Missing columns are replaced by the first one, times zero. */
            for (size_t k = 0; k < COLUMNS; k++) {
                mine[k] = own + (j + (k < columns ? k : 0)) * s->columns + at;
                all[k] = q + (j + (k < columns ? k : 0)) * s->columns + at;
            }
            for (size_t i = 0; i < s->rows; i++) {
                size_t row = i * s->columns + at;
                float by[COLUMNS] = {0};
                for (size_t k = 0; k < columns; k++) {
                    by[k] = p[(j + k) * s->rows + i];
                }
                take_columns(m + row, sum + row, mine, all, by, j == 0, width);
            }
        }
    }
}

/* ---- the next step ---- */

/* Returns a random number between -1 and 1 that follows from the seed (SplitMix: Steele et al.,
 * "Fast Splittable Pseudorandom Number Generators", 2014). */
static float random_of(uint64_t seed)
{
    uint64_t x = (seed + 1) * 0x9e3779b97f4a7c15U;

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9U;
    x = (x ^ x >> 27) * 0x94d049bb133111ebU;
    return (float)((double)((x ^ x >> 31) >> 11) / 4503599627370496.0 - 1);
}

void cmn_lowrank_next(const struct cmn_lowrank *s, float *q, unsigned long long seed)
{
    for (size_t j = 0; j < s->rank; j++) {
        float *x = q + j * s->columns;
        double length = sqrt(product(x, x, s->columns));
        for (size_t i = 0; i < s->columns && !(length > 0); i++) {
            x[i] = random_of((seed << 40) + j * s->columns + i);
        }
        length = length > 0 ? length : sqrt(product(x, x, s->columns));
        scale(x, s->columns, 1 / length);
    }
}

int cmn_lowrank_finite(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) {
            return 0;
        }
    }
    return 1;
}
