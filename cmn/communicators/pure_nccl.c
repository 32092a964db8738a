/* pure_nccl: everything in one NCCL allreduce over all ranks, wherever they are.
 *
 * Steps: NCCL allreduce of block and tally over all ranks, in place. With cmn_allreduce_dtype=fp16 or bf16
 * the block is divided by N, rounded to 16 bits into a second buffer, summed there, and multiplied by
 * N on its way back; the tally always travels as 32 bits.
 * Bytes: 2(N-1)/N * 4n sent per rank for a block of n floats by NCCL's ring, half of that with 16 bits. Over a
 * node's link the same, once for each ring that NCCL lays over the nodes. NCCL picks the algorithm.
 * The 16 bits also round what momentum is left in the gradients (docs/gpu.md).
 * Source: ChainerMN's communicator of the same name (Akiba, Fukuda, Suzuki, "ChainerMN: Scalable
 * Distributed Deep Learning Framework", 2017). */
#include "communicator.h"

#include <stdlib.h>

#include "log.h"
#include "transports/nccl.h"
#include "transports/transport.h"

struct pure_nccl {
    struct cmn_group world;
    void *transport;
};

static const char *refuses_pure_nccl(const struct cmn_topology *t, const struct cmn_options *o)
{
    return cmn_nccl.refuses(t, o);
}

static int open_pure_nccl(void **self, const struct cmn_topology *t, const struct cmn_options *o)
{
    struct pure_nccl *p = calloc(1, sizeof *p);

    if (!p) {
        return cmn_fail("out of memory");
    }
    *self = p;
    p->world = (struct cmn_group){t->world, "world", t, o, 0};
    return cmn_nccl.open(&p->transport, &p->world);
}

static int allreduce_pure_nccl(void *self, const struct cmn_exchange *x)
{
    const struct pure_nccl *p = self;
    enum cmn_dtype type = (enum cmn_dtype)p->world.options->dtype;

    if (type == CMN_FP32) {
        return cmn_nccl.allreduce(p->transport, x->block.data, x->block.n + x->tally.n);
    }
    if (cmn_nccl_allreduce_as(p->transport, x->block.data, x->block.n, type)) {
        return -1;
    }
    return cmn_nccl.allreduce(p->transport, x->tally.data, x->tally.n);
}

static void close_pure_nccl(void *self)
{
    struct pure_nccl *p = self;

    cmn_nccl.close(p->transport);
    free(p);
}

const struct cmn_communicator cmn_communicator_pure_nccl = {
    .name = "pure_nccl",
    .cpu = "no",
    .gpu = "with NCCL (untried)",
    .use = "GPUs, on one node or several: the first choice there",
    .sums = 1,
    .narrows = 1,
    .always = "nccl",
    .refuses = refuses_pure_nccl,
    .open = open_pure_nccl,
    .allreduce = allreduce_pure_nccl,
    .close = close_pure_nccl,
};
