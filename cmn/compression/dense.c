/* off, fp16, bf16: compressors that send every value, unchanged or cast to 16 bits.
 *
 * Steps, for each shard: those of transports/sums.h. With 16 bits each value is cast twice: on its
 * way to the rank that adds, and as a sum on its way back. Additions use 32 bits. The rank that
 * casts keeps the rounding error, and adds it to its next value.
 * Bytes sent per rank of M, n floats: 2(M-1)/M * 4n, with 16 bits 2(M-1)/M * 2n. */
#include <stdlib.h>

#include "base/memory.h"
#include "compression/compressor.h"
#include "transports/sums.h"

struct dense {
    const struct cmn_compressor_plan *plan;
    struct cmn_sums *sums;
    enum cmn_dtype dtype;
    float *error; /* rounding errors, laid out like the block; NULL with 32 bits */
    size_t floats;
};

static void *open_dense(const struct cmn_compressor_plan *plan, enum cmn_dtype dtype)
{
    struct dense *d = cmn_calloc(1, sizeof *d);

    d->plan = plan;
    d->dtype = dtype;
    for (int i = 0; i < plan->shards; i++) {
        size_t end = plan->shard[i].at + plan->shard[i].n;
        d->floats = end > d->floats ? end : d->floats;
    }
    d->sums = cmn_sums_open(plan->comm, plan->options, 0);
    d->error = dtype == CMN_FP32 ? NULL : cmn_calloc(d->floats, sizeof *d->error);
    return d;
}

static void *open_none(const struct cmn_compressor_plan *plan)
{
    return open_dense(plan, CMN_FP32);
}

static void *open_fp16(const struct cmn_compressor_plan *plan)
{
    return open_dense(plan, CMN_FP16);
}

static void *open_bf16(const struct cmn_compressor_plan *plan)
{
    return open_dense(plan, CMN_BF16);
}

static void begin_dense(void *self, int i)
{
    struct dense *d = self;
    const struct cmn_shard *shard = &d->plan->shard[i];
    struct cmn_sum sum = {
        .data = d->plan->block + shard->at,
        .n = shard->n,
        .dtype = shard->exact ? CMN_FP32 : d->dtype,
        .error = shard->exact || !d->error ? NULL : d->error + shard->at,
        .tree = d->plan->tree,
        .at = shard->at,
    };

    cmn_sums_begin(d->sums, &sum);
}

static long progress_dense(void *self, long until)
{
    const struct dense *d = self;

    return cmn_sums_progress(d->sums, until);
}

static unsigned long long sent_dense(const void *self)
{
    const struct dense *d = self;

    return cmn_sums_sent(d->sums);
}

static int state_dense(void *self, int i, struct cmn_state *state)
{
    struct dense *d = self;

    if (i == 0 && d->error) {
        *state = (struct cmn_state){"rounded off", d->error, d->floats * sizeof *d->error,
                                    CMN_VALUES_FINITE, 0};
        return 1;
    }
    return 0;
}

static void close_dense(void *self)
{
    struct dense *d = self;

    cmn_sums_close(d->sums);
    free(d->error);
    free(d);
}

const struct cmn_compressor cmn_compressor_none = {
    .name = "off",
    .wire = "2(M-1)/M * 4n",
    .use = "any link: the sum itself",
    .source = "",
    .open = open_none,
    .begin = begin_dense,
    .progress = progress_dense,
    .sent = sent_dense,
    .state = state_dense,
    .close = close_dense,
};

const struct cmn_compressor cmn_compressor_fp16 = {
    .name = "fp16",
    .wire = "2(M-1)/M * 2n",
    .use = "links that are a little too slow: half the bytes",
    .source = "Micikevicius et al., Mixed Precision Training, 2018",
    .open = open_fp16,
    .begin = begin_dense,
    .progress = progress_dense,
    .sent = sent_dense,
    .state = state_dense,
    .close = close_dense,
};

const struct cmn_compressor cmn_compressor_bf16 = {
    .name = "bf16",
    .wire = "2(M-1)/M * 2n",
    .use = "as fp16, where values span a wider range: 8 bits of precision instead of 11",
    .source = "Kalamkar et al., A Study of BFLOAT16 for Deep Learning Training, 2019",
    .open = open_bf16,
    .begin = begin_dense,
    .progress = progress_dense,
    .sent = sent_dense,
    .state = state_dense,
    .close = close_dense,
};
