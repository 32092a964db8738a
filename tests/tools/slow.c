/* Preloaded: a slow rank takes SLOW_MS longer for each matrix product, or with SLOW_LOADS for the
 * end of each thread. SLOW_RANK says which rank is slow; with "turns" it is one of three, and
 * another one every 2 s. Without it all ranks are slow while the file `slow` is there. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int is_slow(void)
{
    const char *who = getenv("SLOW_RANK"), *rank = getenv("OMPI_COMM_WORLD_RANK");

    if (!who || !rank) {
        return rank && !access("slow", F_OK);
    }
    return strcmp(who, "turns") ? !strcmp(who, rank) : time(NULL) / 2 % 3 == atoi(rank);
}

static void delay(int loads)
{
    if (loads == !!getenv("SLOW_LOADS") && is_slow()) {
        usleep((unsigned)atoi(getenv("SLOW_MS")) * 1000);
    }
}

void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a,
                 int lda, const float *b, int ldb, float beta, float *c, int ldc);
void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a,
                 int lda, const float *b, int ldb, float beta, float *c, int ldc)
{
    __typeof__(cblas_sgemm) *real = (__typeof__(real))dlsym(RTLD_NEXT, "cblas_sgemm");

    delay(0);
    real(order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

int pthread_join(unsigned long thread, void **value);
int pthread_join(unsigned long thread, void **value)
{
    __typeof__(pthread_join) *real = (__typeof__(real))dlsym(RTLD_NEXT, "pthread_join");

    delay(1);
    return real(thread, value);
}
