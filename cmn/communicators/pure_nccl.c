/* pure_nccl: everything by NCCL allreduces over all ranks, wherever they are.
 *
 * Steps: the block is cut into at most 16 parts of at least 1 MiB, and each is one NCCL allreduce
 * over all ranks, in place; the metrics go with the last. With cmn_compress=fp16 or bf16
 * a part is divided by the step's images, cast to 16 bits into a second buffer, summed there, and
 * multiplied by them on its way back; the metrics always travel as 32 bits.
 * When exchanges overlap, a part is given to NCCL as soon as all of it is final, and waits on the
 * GPU for the backward that makes it. The parts depend on the block alone, so overlap
 * changes no bit of the sums.
 * Bytes: 2(N-1)/N * 4n sent per rank for a block of n floats by NCCL's ring, half of that with 16
 * bits. Over a node's link the same, once for each ring that NCCL lays over the nodes. NCCL picks
 * the algorithm.
 * Source: ChainerMN's communicator of the same name (Akiba, Fukuda, Suzuki, "ChainerMN: Scalable
 * Distributed Deep Learning Framework", 2017). */
#include "communicators/communicator.h"

#include <stdlib.h>

#include "base/memory.h"
#include "communicators/parts.h"
#include "transports/nccl.h"
#include "transports/transport.h"

struct pure_nccl {
    struct cmn_group world;
    void *transport;
    struct cmn_parts parts;
};

static const char *refuses_pure_nccl(const struct cmn_topology *t, const struct cmn_options *o)
{
    return cmn_nccl.refuses(t, o);
}

static int open_pure_nccl(void **self, const struct cmn_topology *t, const struct cmn_options *o)
{
    struct pure_nccl *p = cmn_calloc(1, sizeof *p);

    *self = p;
    p->world = (struct cmn_group){t->world, "world", t, o};
    return cmn_nccl.open(&p->transport, &p->world);
}

static int memory_pure_nccl(void *self, size_t floats, float **memory)
{
    const struct pure_nccl *p = self;

    return cmn_nccl_memory(p->transport, NULL, floats, memory);
}

static enum cmn_dtype type_of(const struct pure_nccl *p)
{
    return cmn_wire_type(p->world.options);
}

static void begin_part(void *self, const struct cmn_exchange *x, float *data, size_t n,
                       enum cmn_dtype type)
{
    const struct pure_nccl *p = self;

    cmn_nccl_begin(p->transport, data, n, type, type == CMN_FP32 ? 0 : x->images);
}

static void begin_pure_nccl(void *self, const struct cmn_exchange *x, size_t upto)
{
    struct pure_nccl *p = self;

    cmn_parts_begin(&p->parts, x, upto, type_of(p), begin_part, p);
    cmn_nccl_poll(p->transport);
}

static void poll_pure_nccl(void *self)
{
    const struct pure_nccl *p = self;

    cmn_nccl_poll(p->transport);
}

static int order_pure_nccl(void *self)
{
    const struct pure_nccl *p = self;

    cmn_nccl_order(p->transport);
    return 1;
}

static void allreduce_pure_nccl(void *self, const struct cmn_exchange *x)
{
    struct pure_nccl *p = self;

    cmn_parts_begin_rest(&p->parts, x, type_of(p), begin_part, p);
    p->parts = (struct cmn_parts){0};
    cmn_nccl_end(p->transport);
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
    .gpu = "with NCCL",
    .use = "GPUs, on one node or several: the first choice there",
    .sums = 1,
    .can = {0, CMN_CASTS | CMN_DELAYS},
    .refuses = refuses_pure_nccl,
    .open = open_pure_nccl,
    .memory = memory_pure_nccl,
    .allreduce = allreduce_pure_nccl,
    .begin = begin_pure_nccl,
    .poll = poll_pure_nccl,
    .order = order_pure_nccl,
    .close = close_pure_nccl,
};
