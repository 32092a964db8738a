/* How the NCCL transport cuts blocks into parts and slices, and which NCCL calls move slices. */
#include "transports/nccl.h"

/* In floats, except PARTS. A part is a multiple of UNIT: every number of ranks that divides 1680
 * cuts it into equal slices of whole lines of 16 floats. */
enum { PARTS = 16, LINE = 16, UNIT = LINE * 1680, PART_AT_LEAST = 10 * UNIT };

size_t cmn_nccl_chunk(size_t n)
{
    size_t even = (n / PARTS + UNIT) / UNIT * UNIT;

    return even > PART_AT_LEAST ? even : PART_AT_LEAST;
}

#ifdef CMN_NCCL

#include "transports/nccl_internal.h"

/* Queues a reduce of n floats to rank `root`, or a broadcast from it. */
static void queue_slice(struct nccl *c, float *data, size_t n, int root, int sum)
{
    if (n > 0 && sum) {
        cmn_nccl_check(c,
                       ncclReduce(data, data, n, ncclFloat32, ncclSum, root, c->comm, c->stream));
    } else if (n > 0) {
        cmn_nccl_check(c, ncclBroadcast(data, data, n, ncclFloat32, root, c->comm, c->stream));
    }
}

static ncclResult_t queue_equal_slices(struct nccl *c, float *data, size_t n, int sum)
{
    size_t each = n / (size_t)c->size;
    float *mine = data + each * (size_t)c->rank;

    return sum ? ncclReduceScatter(data, mine, each, ncclFloat32, ncclSum, c->comm, c->stream)
               : ncclAllGather(mine, data, each, ncclFloat32, c->comm, c->stream);
}

/* If each rank owns a slice and all slices have one length, one call of NCCL moves them. Otherwise
 * each slice gets a reduce to its owner, or a broadcast from it, all in one group, so NCCL runs
 * them together. */
ncclResult_t cmn_nccl_queue_slices(struct nccl *c, float *data, size_t n, int slices, int sum)
{
    if (slices > 1 && slices == c->size && n % ((size_t)slices * LINE) == 0) {
        return queue_equal_slices(c, data, n, sum);
    }
    cmn_nccl_check(c, ncclGroupStart());
    for (int i = 0; i < slices; i++) {
        size_t at, count;
        cmn_slice(n, slices, i, &at, &count);
        queue_slice(c, data + at, count, i, sum);
    }
    return ncclGroupEnd();
}

#endif
