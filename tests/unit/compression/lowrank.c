/* Arithmetic of matrices of low rank, against plain loops in double arithmetic. */
#include "check.h"

#include <math.h>

#include "compression/lowrank.h"

/* Odd ones, smaller and larger than a vector, a tile, or what is worked at together. */
static const struct cmn_lowrank sizes[] = {
    {1, 1, 1},   {2, 3, 1},     {3, 9, 2},    {5, 8, 3},      {17, 31, 5},
    {64, 64, 4}, {33, 1025, 7}, {600, 20, 4}, {130, 513, 64},
};

static float *numbers(size_t n)
{
    float *x = malloc((n + 1) * sizeof *x);

    for (size_t i = 0; i < n; i++) {
        x[i] = uniform(-1, 1);
    }
    x[n] = -77; /* a guard */
    return x;
}

/* `size`: of the numbers that were added. */
static void near(double is, double want, double size, const char *what, const struct cmn_lowrank *s)
{
    if (!(fabs(is - want) <= 3e-6 * size)) {
        fail_msg("%s, %zu x %zu, rank %zu: %.9g, not %.9g", what, s->rows, s->columns, s->rank, is,
                 want);
    }
}

static void products_of(const struct cmn_lowrank *s)
{
    size_t n = s->rows * s->columns;
    float *m = numbers(n), *before = malloc(n * sizeof *m), *fresh = numbers(n), *sum = numbers(n);
    float *p = numbers(s->rows * s->rank), *q = numbers(s->columns * s->rank),
          *own = numbers(s->columns * s->rank);

    memcpy(before, m, n * sizeof *m);
    cmn_lowrank_left(s, m, fresh, q, p);
    for (size_t i = 0; i < s->rows; i++) {
        for (size_t j = 0; j < s->rank; j++) {
            double want = 0, size = 0;
            for (size_t c = 0; c < s->columns; c++) {
                double x =
                    ((double)before[i * s->columns + c] + (double)fresh[i * s->columns + c]) *
                    (double)q[j * s->columns + c];
                want += x;
                size += fabs(x);
            }
            near((double)p[j * s->rows + i], want, size, "left", s);
        }
    }
    memcpy(before, m, n * sizeof *m);
    cmn_lowrank_right(s, m, p, q);
    for (size_t c = 0; c < s->columns; c++) {
        for (size_t j = 0; j < s->rank; j++) {
            double want = 0, size = 0;
            for (size_t i = 0; i < s->rows; i++) {
                double x = (double)m[i * s->columns + c] * (double)p[j * s->rows + i];
                want += x;
                size += fabs(x);
            }
            near((double)q[j * s->columns + c], want, size, "right", s);
        }
    }
    cmn_lowrank_take(s, m, sum, p, own, q);
    for (size_t i = 0; i < n; i++) {
        double less = 0, all = 0, size = fabs((double)before[i]), size_of_all = 0;
        for (size_t j = 0; j < s->rank; j++) {
            double x = (double)p[j * s->rows + i / s->columns],
                   y = (double)own[j * s->columns + i % s->columns];
            double z = (double)q[j * s->columns + i % s->columns];
            less += x * y;
            all += x * z;
            size += fabs(x * y);
            size_of_all += fabs(x * z);
        }
        near((double)m[i], (double)before[i] - less, size, "take, kept", s);
        near((double)sum[i], all, size_of_all, "take, sum", s);
    }
    assert_true(m[n] == -77 && fresh[n] == -77 && sum[n] == -77 && p[s->rows * s->rank] == -77);
    assert_true(q[s->columns * s->rank] == -77 && own[s->columns * s->rank] == -77);
    free(m), free(before), free(fresh), free(sum), free(p), free(q), free(own);
}

TEST(products)
{
    for (size_t i = 0; i < COUNT(sizes); i++) {
        products_of(&sizes[i]);
    }
}

static double product(const float *a, const float *b, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++) {
        sum += (double)a[i] * (double)b[i];
    }
    return sum;
}

/* Columns that depend on others, none at all, nearly the same ones, sizes from 1e-30 to 1e30. */
TEST(orthonormal)
{
    struct cmn_lowrank s = {200, 1, 8};
    float *p = numbers(s.rows * s.rank), *mixed = numbers(s.rows);

    memset(p, 0, s.rows * sizeof *p);
    for (size_t i = 0; i < s.rows; i++) {
        p[2 * s.rows + i] = 3 * p[s.rows + i];
        p[4 * s.rows + i] = p[3 * s.rows + i] + 1e-3F * p[4 * s.rows + i];
        p[5 * s.rows + i] *= 1e-30F;
        p[6 * s.rows + i] *= 1e30F;
        p[7 * s.rows + i] = p[3 * s.rows + i] - p[s.rows + i];
    }
    memcpy(mixed, p + 4 * s.rows, s.rows * sizeof *p);
    cmn_lowrank_orthonormal(&s, p);
    for (size_t j = 0; j < s.rank; j++) {
        int gone = j == 0 || j == 2 || j == 7;
        for (size_t i = 0; i <= j; i++) {
            double want = i == j && !gone ? 1 : 0;
            if (fabs(product(p + i * s.rows, p + j * s.rows, s.rows) - want) > 1e-6) {
                fail_msg("columns %zu and %zu: %g", i, j,
                         product(p + i * s.rows, p + j * s.rows, s.rows));
            }
        }
    }
    /* What a column held is still in those up to it. */
    double length = product(mixed, mixed, s.rows), held = 0;
    for (size_t j = 0; j <= 4; j++) {
        double along = product(mixed, p + j * s.rows, s.rows);
        held += along * along;
    }
    assert_true(fabs(held / length - 1) < 1e-6);
    free(p);
    free(mixed);
}

TEST(next_columns)
{
    struct cmn_lowrank s = {1, 300, 4};
    float *q = numbers(s.columns * s.rank), *again = malloc(s.columns * s.rank * sizeof *q),
          scale[] = {1e-30F, 1, 0, 1e30F};

    for (size_t i = 0; i < s.columns * s.rank; i++) {
        q[i] *= scale[i / s.columns];
    }
    memcpy(again, q, s.columns * s.rank * sizeof *q);
    cmn_lowrank_next(&s, q, 5);
    for (size_t j = 0; j < s.rank; j++) {
        const float *x = q + j * s.columns, *y = again + j * s.columns;
        assert_true(fabs(product(x, x, s.columns) - 1) < 1e-6);
        if (scale[j] > 0) {
            assert_true(fabs(product(x, y, s.columns) / sqrt(product(y, y, s.columns)) - 1) < 1e-6);
        }
    }
    cmn_lowrank_next(&s, again, 5);
    assert_memory_equal(q, again, s.columns * s.rank * sizeof *q);
    memset(again, 0, s.columns * s.rank * sizeof *q);
    cmn_lowrank_next(&s, again, 6);
    for (size_t j = 0; j < s.rank; j++) {
        assert_true(fabs(product(q + 2 * s.columns, again + j * s.columns, s.columns)) < 0.3);
        assert_true(j == 0 || fabs(product(again, again + j * s.columns, s.columns)) < 0.3);
    }
    free(q);
    free(again);
}

TEST(finds_what_is_not_finite)
{
    float x[] = {1, -2, 3e38F, 0};
    const float bad[] = {NAN, INFINITY, -INFINITY};

    assert_true(cmn_lowrank_finite(x, 4) && cmn_lowrank_finite(x, 0));
    for (size_t i = 0; i < 12; i++) {
        float was = x[i % 4];
        x[i % 4] = bad[i / 4];
        assert_false(cmn_lowrank_finite(x, 4));
        x[i % 4] = was;
    }
}

TESTS(NULL, NULL)
