#include "communicators/parts.h"

#include "transports/nccl.h"

void cmn_parts_begin(struct cmn_parts *p, const struct cmn_exchange *x, size_t upto,
                     enum cmn_dtype type, cmn_part_begin begin, void *self)
{
    size_t each = cmn_nccl_chunk(x->block.n);

    while (p->begun + each <= upto && p->begun + each < x->block.n) {
        begin(self, x, x->block.data + p->begun, each, type);
        p->begun += each;
    }
    if (upto > x->block.n) {
        cmn_parts_begin_rest(p, x, type, begin, self);
    }
}

void cmn_parts_begin_rest(struct cmn_parts *p, const struct cmn_exchange *x, enum cmn_dtype type,
                          cmn_part_begin begin, void *self)
{
    size_t with_it = type == CMN_FP32 ? x->metrics.n : 0;

    if (p->all) {
        return;
    }
    cmn_parts_begin(p, x, x->block.n, type, begin, self);
    begin(self, x, x->block.data + p->begun, x->block.n - p->begun + with_it, type);
    if (type != CMN_FP32) {
        begin(self, x, x->metrics.data, x->metrics.n, CMN_FP32);
    }
    p->all = 1;
}
