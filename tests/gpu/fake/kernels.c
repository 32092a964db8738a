/* The kernels over all tensors of a flat buffer, on the CPU: queued, as work on a stream is. */
#include "fake.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "mpi/kernels.h"

/* What a kernel was given. */
struct given {
    struct cmn_kernel_sgd sgd;
    float *found, by;
    void *part;
    const unsigned short *tensor;
    const float *x;
    const size_t *at, *n;
    size_t from, to;
    int tensors;
};

static void queue(int (*run)(struct fake_work *w), const struct given *given, void *stream)
{
    struct fake_work work = {.run = run, .to = malloc(sizeof *given)};

    memcpy(work.to, given, sizeof *given);
    fake_queue(stream, &work);
}

static struct given take(struct fake_work *w)
{
    struct given given = *(struct given *)w->to;

    free(w->to);
    return given;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static int run_sgd(struct fake_work *w)
{
    struct given given = take(w);
    const struct cmn_kernel_sgd *k = &given.sgd;
    float *weight = fake_address(k->weights), *sum = fake_address(k->sums);
    float *velocity = k->velocity ? fake_address(k->velocity) : NULL;
    const unsigned short *tensor = fake_address(k->tensor);
    const float *scale = fake_address(k->scale), *rate = fake_address(k->rate);
    const float *decay = fake_address(k->decay), *limit = fake_address(k->limit);

    for (size_t i = 0; i < k->n; i++) {
        int t = tensor[i / CMN_KERNEL_UNIT];
        float u = scale[t] * sum[i] + decay[t] * weight[i] + (velocity ? velocity[i] : 0);
        weight[i] += rate[t] * u;
        if (limit[t] != 0) {
            weight[i] = weight[i] > limit[t]    ? limit[t]
                        : weight[i] < -limit[t] ? -limit[t]
                                                : weight[i];
        }
        *(velocity ? &velocity[i] : &sum[i]) = k->momentum * u;
        sum[i] = velocity ? 0 : sum[i];
    }
    return 1;
}

int cmn_kernel_sgd(const struct cmn_kernel_sgd *k, void *stream)
{
    queue(run_sgd, &(struct given){.sgd = *k}, stream);
    return 0;
}

static int run_look(struct fake_work *w)
{
    struct given given = take(w);
    const float *x = fake_address(given.x);
    const unsigned short *tensor = fake_address(given.tensor);
    float *found = fake_address(given.found);

    for (size_t i = given.from; i < given.to; i++) {
        if ((bits_of(x[i]) & UINT32_C(0x7f800000)) == UINT32_C(0x7f800000)) {
            found[tensor[i / CMN_KERNEL_UNIT]] = 1;
        }
    }
    return 1;
}

int cmn_kernel_nonfinite(float *found, const unsigned short *tensor, const float *x, size_t from,
                         size_t to, void *stream)
{
    queue(run_look,
          &(struct given){.found = found, .tensor = tensor, .x = x, .from = from, .to = to},
          stream);
    return 0;
}

/* The first part of each tensor gets all of it. */
static int run_sums(struct fake_work *w, int of_squares)
{
    struct given given = take(w);
    const size_t *at = fake_address(given.at), *n = fake_address(given.n);
    double *square = fake_address(given.part);
    unsigned long long *hash = fake_address(given.part);

    memset(square, 0, (size_t)given.tensors * CMN_KERNEL_PARTS * sizeof *square);
    for (int t = 0; t < given.tensors; t++, square += CMN_KERNEL_PARTS, hash += CMN_KERNEL_PARTS) {
        const float *x = (float *)fake_address(given.x) + at[t];
        for (size_t i = 0; i < n[t]; i++) {
            if (of_squares) {
                *square += (double)x[i] * (double)x[i];
            } else {
                *hash = (*hash ^ bits_of(x[i])) * 0x100000001b3ULL;
            }
        }
    }
    return 1;
}

static int run_squares(struct fake_work *w)
{
    return run_sums(w, 1);
}

static int run_hash(struct fake_work *w)
{
    return run_sums(w, 0);
}

int cmn_kernel_squares(double *part, const float *x, const size_t *at, const size_t *n, int tensors,
                       void *stream)
{
    queue(run_squares, &(struct given){.part = part, .x = x, .at = at, .n = n, .tensors = tensors},
          stream);
    return 0;
}

int cmn_kernel_hash(unsigned long long *part, const float *x, const size_t *at, const size_t *n,
                    int tensors, void *stream)
{
    queue(run_hash, &(struct given){.part = part, .x = x, .at = at, .n = n, .tensors = tensors},
          stream);
    return 0;
}

static int run_scale(struct fake_work *w)
{
    struct given given = take(w);
    float *x = (float *)fake_address(given.x);

    for (size_t i = 0; i < given.to; i++) {
        x[i] *= given.by;
    }
    return 1;
}

int cmn_kernel_scale(float *x, float by, size_t n, void *stream)
{
    queue(run_scale, &(struct given){.x = x, .by = by, .to = n}, stream);
    return 0;
}

static int run_combine(struct fake_work *w)
{
    struct given given = take(w);
    float *to = fake_address(given.found);
    const float *a = fake_address(given.x), *b = fake_address(given.part);

    for (size_t i = 0; i < given.to; i++) {
        to[i] = a[i] + given.by * b[i];
    }
    return 1;
}

int cmn_kernel_combine(float *to, const float *a, float by, const float *b, size_t n, void *stream)
{
    queue(run_combine, &(struct given){.found = to, .x = a, .part = (float *)b, .by = by, .to = n},
          stream);
    return 0;
}
