/* How transport nccl cuts what it moves: parts and slices; and which of NCCL's calls move them. */
#include "transports/nccl.h"

/* Floats. For most numbers of ranks UNIT is so many lines of 16 floats for each: their slices of a
 * part are equal. */
enum { PARTS = 16, LINE = 16, UNIT = LINE * 1680, PART_AT_LEAST = 10 * UNIT };

size_t cmn_nccl_chunk(size_t n)
{
    size_t even = (n / PARTS + UNIT) / UNIT * UNIT;

    return even > PART_AT_LEAST ? even : PART_AT_LEAST;
}

#ifdef CMN_NCCL

#include "transports/nccl_internal.h"

/* A reduce to, or a broadcast from, the owner of n floats. */
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

/* NCCL has one call for slices of one length, one for each rank. Else there is a reduce to, or a
 * broadcast from, each slice's owner, all in one group: NCCL runs them together. */
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
