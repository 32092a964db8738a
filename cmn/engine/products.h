/* Matrix products for cmn_exact: their bits do not depend on the number of threads.
 *
 * OpenBLAS cuts a product by its number of threads, so sums come in another order. Here the shape
 * of a large product decides how it is cut into blocks of rows or columns, and one thread computes
 * each block by one call of OpenBLAS. The process has one set of threads, because Darknet's gemm()
 * passes no network. */
#ifndef CMN_PRODUCTS_H
#define CMN_PRODUCTS_H

/* A product has at most this many blocks; more threads have nothing to do. */
enum { CMN_PRODUCT_BLOCKS = 4 };

/* C = alpha A B + beta C, in row-major order, with the arguments of cblas_sgemm(). A is m x k, B is
 * k x n; A is stored transposed if ta is set, B if tb is set. */
struct cmn_product {
    int ta, tb, m, n, k;
    float alpha, beta;
    const float *a, *b;
    float *c;
    int lda, ldb, ldc;
};

/* Local. Makes cmn_products_multiply() compute from now on, with `threads` threads, the caller's
 * included. OpenBLAS itself must be set to one thread. Another call changes the number of threads;
 * it does not wait for a running product. */
void cmn_products_open(int threads);
void cmn_products_close(void);

/* Local. Returns the number of blocks into which a product of this shape is cut. */
int cmn_products_blocks(int m, int n, int k);

/* Local, thread-safe. Computes the product and returns 1. Returns 0 if cmn_products_open() was not
 * called. */
int cmn_products_multiply(const struct cmn_product *p);

#endif
