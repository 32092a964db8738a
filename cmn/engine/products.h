/* Matrix products with cmn_exact: the bits do not depend on how many threads compute.
 *
 * OpenBLAS cuts a product by its number of threads, and sums come in another order. Here a large product
 * is cut into blocks of rows or columns by its shape alone, and each block is one product of one thread. */
#ifndef CMN_PRODUCTS_H
#define CMN_PRODUCTS_H

enum { CMN_PRODUCT_BLOCKS = 4 }; /* at most; more threads compute nothing */

/* C = alpha A B + beta C, row by row as cblas_sgemm() takes it; A is m x k, transposed in memory where
 * ta is set, B is k x n. */
struct cmn_product {
    int ta, tb, m, n, k;
    float alpha, beta;
    const float *a, *b;
    float *c;
    int lda, ldb, ldc;
};

/* Local. From now on cmn_products_multiply() computes, with so many threads; OpenBLAS itself is to have
 * one. Another call waits for nobody and changes their number. */
void cmn_products_open(int threads);
void cmn_products_close(void);

/* Local. Into how many blocks a product of this shape is cut. */
int cmn_products_blocks(int m, int n, int k);

/* Local, thread-safe. Computes the product, and returns 1; 0 where nothing was opened. */
int cmn_products_multiply(const struct cmn_product *p);

#endif
