/* none, fp16, bf16: every value travels, as it is or rounded to 16 bits.
 *
 * Steps, for each shard: transports/pairwise.c. With 16 bits each value is rounded twice, on its way to the rank that adds and as
 * a sum on its way back; additions have 32 bits. What is rounded off is kept by the rank that rounded, and added to
 * its next value.
 * Bytes sent per rank of M, n floats: 2(M-1)/M * 4n, with 16 bits 2(M-1)/M * 2n. */
#include <stdlib.h>

#include "compression/compressor.h"
#include "base/log.h"
#include "transports/pairwise.h"

struct dense {
    const struct cmn_compressor_plan *plan;
    struct cmn_pairwise *pairwise;
    int ranks;
    enum cmn_dtype dtype;
    float *error; /* what was rounded off, as long as the block; NULL with 32 bits */
    size_t floats;
};

static void close_dense(void *self)
{
    struct dense *d = self;

    cmn_pairwise_close(d->pairwise);
    free(d->error);
    free(d);
}

static int open_dense(void **self, const struct cmn_compressor_plan *plan, enum cmn_dtype dtype)
{
    struct dense *d = calloc(1, sizeof *d);

    if (!d) {
        return cmn_fail("out of memory");
    }
    d->plan = plan;
    d->dtype = dtype;
    MPI_Comm_size(plan->comm, &d->ranks);
    for (int i = 0; i < plan->shards; i++) {
        size_t end = plan->shard[i].at + plan->shard[i].n;
        d->floats = end > d->floats ? end : d->floats;
    }
    if (cmn_pairwise_open(&d->pairwise, plan->comm, 0)) {
        free(d);
        return -1;
    }
    cmn_pairwise_patience(d->pairwise, plan->options->timeout);
    d->error = dtype == CMN_FP32 ? NULL : calloc(d->floats, sizeof *d->error);
    if (dtype != CMN_FP32 && !d->error) {
        cmn_fail("out of memory for what is rounded off: %zu floats", d->floats);
        close_dense(d);
        return -1;
    }
    *self = d;
    return 0;
}

static int open_none(void **self, const struct cmn_compressor_plan *plan)
{
    return open_dense(self, plan, CMN_FP32);
}

static int open_fp16(void **self, const struct cmn_compressor_plan *plan)
{
    return open_dense(self, plan, CMN_FP16);
}

static int open_bf16(void **self, const struct cmn_compressor_plan *plan)
{
    return open_dense(self, plan, CMN_BF16);
}

static int begin_dense(void *self, int i)
{
    struct dense *d = self;
    const struct cmn_shard *shard = &d->plan->shard[i];
    struct cmn_pairwise_job job = {
        .data = d->plan->block + shard->at,
        .n = shard->n,
        .slices = d->ranks,
        .what = CMN_SCATTER | CMN_GATHER,
        .dtype = shard->whole ? CMN_FP32 : d->dtype,
        .error = shard->whole || !d->error ? NULL : d->error + shard->at,
    };

    return cmn_pairwise_begin(d->pairwise, &job);
}

static long progress_dense(void *self, long until)
{
    const struct dense *d = self;

    return cmn_pairwise_progress(d->pairwise, until);
}

static unsigned long long sent_dense(const void *self)
{
    const struct dense *d = self;

    return cmn_pairwise_sent(d->pairwise);
}

static int state_dense(void *self, int i, struct cmn_state *state)
{
    struct dense *d = self;

    if (i > 0 || !d->error) {
        return 0;
    }
    *state = (struct cmn_state){"rounded off", d->error, d->floats * sizeof *d->error};
    return 1;
}

const struct cmn_compressor cmn_compressor_none = {
    .name = "none",
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
