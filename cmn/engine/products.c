#include "engine/products.h"

#include <cblas.h>
#include <pthread.h>
#include <signal.h>

/* A block has at least BLOCK_WORK multiplications, which take about 50 us on one core: waking a
 * thread takes less. Its number of rows or columns is a multiple of UNIT, what the kernels of
 * OpenBLAS process together, except in the last block. */
enum { BLOCK_WORK = 1 << 20, UNIT = 48, LEAST = 2 * UNIT };

static struct {
    int open, threads;    /* threads includes the caller */
    pthread_mutex_t user; /* one product at a time uses the threads */
    pthread_mutex_t lock; /* protects the fields below */
    pthread_cond_t work, done;
    pthread_t thread[CMN_PRODUCT_BLOCKS - 1];
    struct cmn_product product;
    /* Blocks of the product: their number, the next one to compute, and how many are done. */
    int blocks, next, finished;
    int ends;
} pool = {.user = PTHREAD_MUTEX_INITIALIZER,
          .lock = PTHREAD_MUTEX_INITIALIZER,
          .work = PTHREAD_COND_INITIALIZER,
          .done = PTHREAD_COND_INITIALIZER};

/* ---- blocks ---- */

int cmn_products_blocks(int m, int n, int k)
{
    long long work = (long long)m * n * k / BLOCK_WORK, longer = (m > n ? m : n) / LEAST;
    long long blocks = work < longer ? work : longer;

    return blocks < 1 ? 1 : blocks > CMN_PRODUCT_BLOCKS ? CMN_PRODUCT_BLOCKS : (int)blocks;
}

static int begin_of(int length, int i, int blocks)
{
    return i == blocks ? length : (int)((long long)length * i / blocks / UNIT * UNIT);
}

/* Computes block i: rows of A and C if m > n, else columns of B and C. */
static void compute(const struct cmn_product *p, int i, int blocks)
{
    const float *a = p->a, *b = p->b;
    float *c = p->c;
    int m = p->m, n = p->n, at = begin_of(m > n ? m : n, i, blocks);
    int length = begin_of(m > n ? m : n, i + 1, blocks) - at;

    if (m > n) {
        m = length;
        a += (size_t)at * (size_t)(p->ta ? 1 : p->lda);
        c += (size_t)at * (size_t)p->ldc;
    } else {
        n = length;
        b += (size_t)at * (size_t)(p->tb ? p->ldb : 1);
        c += at;
    }
    cblas_sgemm(CblasRowMajor, p->ta ? CblasTrans : CblasNoTrans, p->tb ? CblasTrans : CblasNoTrans,
                m, n, p->k, p->alpha, a, p->lda, b, p->ldb, p->beta, c, p->ldc);
}

/* ---- threads ---- */

/* Computes the next block. The lock is held before and after, and released while it computes. */
static void take_block(void)
{
    struct cmn_product product = pool.product;
    int blocks = pool.blocks, i = pool.next++;

    pthread_mutex_unlock(&pool.lock);
    compute(&product, i, blocks);
    pthread_mutex_lock(&pool.lock);
    if (++pool.finished == pool.blocks) {
        pthread_cond_signal(&pool.done);
    }
}

static void *help(void *nothing)
{
    (void)nothing;
    pthread_mutex_lock(&pool.lock);
    while (!pool.ends) {
        if (pool.next < pool.blocks) {
            take_block();
        } else {
            pthread_cond_wait(&pool.work, &pool.lock);
        }
    }
    pthread_mutex_unlock(&pool.lock);
    return NULL;
}

void cmn_products_open(int threads)
{
    sigset_t all, before;

    cmn_products_close();
    pool.open = 1;
    pool.threads = threads < 1 ? 1 : threads > CMN_PRODUCT_BLOCKS ? CMN_PRODUCT_BLOCKS : threads;
    /* The new threads block all signals, so that the existing threads handle them. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int i = 0; i < pool.threads - 1; i++) {
        if (pthread_create(&pool.thread[i], NULL, help, NULL)) {
            pool.threads = i + 1; /* fewer threads give the same bits */
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void cmn_products_close(void)
{
    pthread_mutex_lock(&pool.lock);
    pool.ends = 1;
    pthread_cond_broadcast(&pool.work);
    pthread_mutex_unlock(&pool.lock);
    for (int i = 0; i < pool.threads - 1; i++) {
        pthread_join(pool.thread[i], NULL);
    }
    pool.open = pool.ends = pool.threads = 0;
}

static void share(const struct cmn_product *p, int blocks)
{
    pthread_mutex_lock(&pool.lock);
    pool.product = *p;
    pool.blocks = blocks;
    pool.next = pool.finished = 0;
    pthread_cond_broadcast(&pool.work);
    while (pool.next < pool.blocks) {
        take_block();
    }
    while (pool.finished < pool.blocks) {
        pthread_cond_wait(&pool.done, &pool.lock);
    }
    pthread_mutex_unlock(&pool.lock);
}

int cmn_products_multiply(const struct cmn_product *p)
{
    int blocks = cmn_products_blocks(p->m, p->n, p->k);

    if (!pool.open) {
        return 0;
    }
    if (blocks > 1 && pool.threads > 1 && !pthread_mutex_trylock(&pool.user)) {
        share(p, blocks);
        pthread_mutex_unlock(&pool.user);
        return 1;
    }
    for (int i = 0; i < blocks; i++) {
        compute(p, i, blocks);
    }
    return 1;
}
