/* gemm_threads: whether Darknet's own matrix product, compiled with -fopenmp and without BLAS, gives with several threads
 * the bits that it gives with one, for each pair of transpositions. 0 when it does. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gemm.h"

enum { N = 61, TRIES = 150 };

/* What gemm.c calls of other files. */
void cmn_progress(void)
{
}

int cmn_rand(void)
{
    return 0;
}

int main(void)
{
    static float a[N * N], b[N * N], one[N * N], many[N * N];
    int wrong = 0;

    for (int i = 0; i < N * N; i++) {
        a[i] = (float)(i * 37 % 101) / 101;
        b[i] = (float)(i * 53 % 97) / 97;
    }
    for (int how = 0; how < 4; how++) {
        memset(one, 0, sizeof one);
        omp_set_num_threads(1);
        gemm_cpu(how & 1, how >> 1, N, N, N, 1, a, N, b, N, 1, one, N);
        for (int k = 0; k < TRIES; k++) {
            memset(many, 0, sizeof many);
            omp_set_num_threads(4);
            gemm_cpu(how & 1, how >> 1, N, N, N, 1, a, N, b, N, 1, many, N);
            wrong += memcmp(one, many, sizeof one) != 0;
        }
    }
    printf("%d of %d products differ\n", wrong, 4 * TRIES);
    return wrong != 0;
}
