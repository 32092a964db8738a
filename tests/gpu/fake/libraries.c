/* cuBLAS and cuRAND on the CPU, over the stand-in's memory. As the libraries do, each call is queued
 * behind Darknet's work and returns. */
#include <cblas.h>
#include <stdlib.h>

#include "cublas_v2.h"
#include "curand.h"
#include "fake.h"

struct fake_blas {
    int device;
};
/* A new seed begins no new sequence: the position stays, as only an offset would set it. */
struct fake_generator {
    unsigned long long seed, position;
    int device;
};

void fake_require_device(int device, const char *who)
{
    if (device != fake_current(who)) {
        fake_die("%s on GPU %d was given a handle of GPU %d", who, fake_current(who), device);
    }
}

cublasStatus_t cublasCreate(cublasHandle_t *handle)
{
    *handle = calloc(1, sizeof **handle);
    (*handle)->device = fake_current("cublasCreate");
    return CUBLAS_STATUS_SUCCESS;
}

struct product {
    int transa, transb, m, n, k, lda, ldb, ldc;
    float alpha, beta, *a, *b, *c;
};

static void run_product(void *arguments)
{
    const struct product *p = arguments;

    cblas_sgemm(CblasColMajor, p->transa ? CblasTrans : CblasNoTrans,
                p->transb ? CblasTrans : CblasNoTrans, p->m, p->n, p->k, p->alpha, p->a, p->lda,
                p->b, p->ldb, p->beta, p->c, p->ldc);
}

/* Of a matrix with so many rows and columns, column by column. */
static size_t bytes_of(int rows, int columns, int stride)
{
    return columns > 0 ? ((size_t)(columns - 1) * (size_t)stride + (size_t)rows) * sizeof(float)
                       : 0;
}

cublasStatus_t cublasSgemm(cublasHandle_t handle, cublasOperation_t transa,
                           cublasOperation_t transb, int m, int n, int k, const float *alpha,
                           const float *a, int lda, const float *b, int ldb, const float *beta,
                           float *c, int ldc)
{
    struct product p = {(int)transa, (int)transb, m,     n,    k,    lda, ldb,
                        ldc,         *alpha,      *beta, NULL, NULL, NULL};

    fake_require_device(handle->device, "cublasSgemm");
    if (m < 0 || n < 0 || k < 0 || lda < (transa ? k : m) || ldb < (transb ? n : k) || ldc < m) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    p.a = fake_device(a, bytes_of(transa ? k : m, transa ? m : k, lda), "cublasSgemm: A");
    p.b = fake_device(b, bytes_of(transb ? n : k, transb ? k : n, ldb), "cublasSgemm: B");
    p.c = fake_device(c, bytes_of(m, n, ldc), "cublasSgemm: C");
    fake_call("cublasSgemm", run_product, &p, sizeof p);
    return CUBLAS_STATUS_SUCCESS;
}

curandStatus_t curandCreateGenerator(curandGenerator_t *generator, curandRngType_t type)
{
    (void)type;
    *generator = calloc(1, sizeof **generator);
    (*generator)->device = fake_current("curandCreateGenerator");
    return CURAND_STATUS_SUCCESS;
}

curandStatus_t curandSetPseudoRandomGeneratorSeed(curandGenerator_t generator,
                                                  unsigned long long seed)
{
    generator->seed = seed;
    return CURAND_STATUS_SUCCESS;
}

struct draw {
    unsigned long long seed, position;
    float *to;
    size_t n;
};

/* Each number is a hash of seed and position. */
static void run_draw(void *arguments)
{
    const struct draw *d = arguments;

    for (size_t i = 0; i < d->n; i++) {
        unsigned long long z = d->seed * 6364136223846793005ULL + d->position + i;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
        z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
        d->to[i] = (float)((z ^ z >> 31) >> 40) / (float)(1 << 24);
    }
}

curandStatus_t curandGenerateUniform(curandGenerator_t generator, float *to, size_t n)
{
    struct draw d = {generator->seed, generator->position, NULL, n};

    fake_require_device(generator->device, "curandGenerateUniform");
    d.to = fake_device(to, n * sizeof *to, "curandGenerateUniform");
    generator->position += n;
    fake_call("curandGenerateUniform", run_draw, &d, sizeof d);
    return CURAND_STATUS_SUCCESS;
}
