/* Products with cmn_exact: as by definition, and the same bits on 1, 2, 3 and 4 threads. */
#include "engine/products.h"

#include "threads.h"

#include <cblas.h>
#include <math.h>

struct shape {
    int m, n, k;
};

/* The last ones are cut: as many rows or columns as the kernels take at once, one more, one less. For
 * 100 x 1000 x 784 and 256 x 2304 x 392 OpenBLAS 0.3.21 itself gives other bits on two threads. */
static const struct shape shapes[] = {
    {1, 1, 1},       {3, 5, 7},        {10, 64, 100},   {1, 2000, 300},  {2000, 1, 300},
    {95, 97, 300},   {192, 191, 60},   {191, 193, 61},  {192, 192, 60},  {100, 1000, 784},
    {1000, 100, 64}, {256, 2304, 392}, {32, 1024, 144}, {1024, 33, 145}, {100, 385, 1000},
    {385, 384, 77},  {1, 20000, 500},  {97, 10001, 16},
};

static void fill(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = uniform(-.5F, .5F);
    }
}

static struct cmn_product product_of(struct shape s, const float *a, const float *b, float *c)
{
    return (struct cmn_product){0, 0, s.m, s.n, s.k, 1, 0, a, b, c, s.k, s.n, s.n};
}

/* Whether an element is as the definition says, within what floats give. */
static void expect_element(const struct cmn_product *p, const float *before, int i, int j)
{
    double sum = 0, size = 1e-3;
    double c = (double)p->c[i * p->ldc + j];

    for (int l = 0; l < p->k; l++) {
        double x = (double)p->a[p->ta ? l * p->lda + i : i * p->lda + l] *
                   (double)p->b[p->tb ? j * p->ldb + l : l * p->ldb + j];
        sum += x;
        size += fabs(x);
    }
    sum = (double)p->alpha * sum + (double)p->beta * (double)before[i * p->ldc + j];
    if (!(fabs(c - sum) <= 1e-5 * size)) {
        fail_msg("%d x %d x %d (%d, %d): element %d, %d is %g, and not %g", p->m, p->n, p->k, p->ta,
                 p->tb, i, j, c, sum);
    }
}

/* Every threads' result is to be that of one; of what lies between the rows of C nothing changes. */
static void compare(struct shape s, int ta, int tb)
{
    int lda = (ta ? s.m : s.k) + 3, ldb = (tb ? s.k : s.n) + 1, ldc = s.n + 2;
    size_t a = (size_t)(ta ? s.k : s.m) * (size_t)lda, b = (size_t)(tb ? s.n : s.k) * (size_t)ldb;
    size_t c = (size_t)s.m * (size_t)ldc;
    float *x = malloc((a + b + 3 * c) * sizeof *x), *before = x + a + b, *first = before + c;
    float *result = first + c;
    struct cmn_product p = product_of(s, x, x + a, result);

    p.ta = ta, p.tb = tb, p.alpha = 1.5F, p.beta = .5F;
    p.lda = lda, p.ldb = ldb, p.ldc = ldc;
    fill(x, a + b + c);
    for (int threads = 1; threads <= CMN_PRODUCT_BLOCKS + 1; threads++) {
        cmn_products_open(threads);
        for (int attempt = 0; attempt < 1 + (threads == 3); attempt++) {
            memcpy(result, before, c * sizeof *x);
            assert_int_equal(cmn_products_multiply(&p), 1);
            if (threads == 1 && attempt == 0) {
                memcpy(first, result, c * sizeof *x);
            }
            assert_memory_equal(result, first, c * sizeof *x);
        }
    }
    for (int i = 0; i < s.m; i += 1 + s.m / 40) {
        for (int j = 0; j < s.n; j += 1 + s.n / 40) {
            expect_element(&p, before, i, j);
        }
        assert_memory_equal(result + i * ldc + s.n, before + i * ldc + s.n, 2 * sizeof *x);
    }
    expect_element(&p, before, s.m - 1, s.n - 1);
    cmn_products_close();
    free(x);
}

TEST(test_bits)
{
    openblas_set_num_threads(1);
    for (int i = 0; i < (int)COUNT(shapes); i++) {
        for (int how = 0; how < 4; how++) {
            compare(shapes[i], how & 1, how >> 1);
        }
    }
}

TEST(test_blocks)
{
    assert_int_equal(cmn_products_blocks(10, 64, 100), 1);
    assert_int_equal(cmn_products_blocks(1, 191, 100000), 1);
    assert_int_equal(cmn_products_blocks(1, 192, 100000), 2);
    assert_int_equal(cmn_products_blocks(100, 1000, 20), 1);
    assert_int_equal(cmn_products_blocks(100, 1000, 32), 3);
    assert_int_equal(cmn_products_blocks(1000, 100, 784), 4);
    assert_int_equal(cmn_products_blocks(100000, 100000, 100000), 4);
}

TEST(test_closed)
{
    float x[3] = {2, 3, 0};
    const struct cmn_product p = product_of((struct shape){1, 1, 1}, x, x + 1, x + 2);

    assert_int_equal(cmn_products_multiply(&p), 0);
    cmn_products_open(3);
    assert_int_equal(cmn_products_multiply(&p), 1);
    assert_true(x[2] == 6);
    cmn_products_close();
    cmn_products_close();
    assert_int_equal(cmn_products_multiply(&p), 0);
}

/* Several threads of a program multiply at once. */

enum { SIDE = 200, CALLERS = 4, PRODUCTS = 60 };

static float factor[SIDE * SIDE], results[CALLERS][SIDE * SIDE];

static void call(int caller)
{
    const struct cmn_product p =
        product_of((struct shape){SIDE, SIDE, SIDE}, factor, factor, results[caller]);

    for (int i = 0; i < PRODUCTS; i++) {
        memset(results[caller], 0, sizeof results[caller]);
        cmn_products_multiply(&p);
    }
}

TEST(test_callers)
{
    fill(factor, SIDE * SIDE);
    cmn_products_open(3);
    assert_in_range(cmn_products_blocks(SIDE, SIDE, SIDE), 2, CMN_PRODUCT_BLOCKS);
    in_threads(CALLERS, call);
    for (int i = 1; i < CALLERS; i++) {
        assert_memory_equal(results[i], results[0], sizeof results[0]);
    }
    cmn_products_close();
}

TESTS(NULL, NULL)
