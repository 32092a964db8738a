/* The parts of a block that NCCL sums in the background, the same in each step: which bits come follows
 * from them (cmn_nccl_chunk). Local. */
#ifndef CMN_PARTS_H
#define CMN_PARTS_H

#include "communicators/communicator.h"
#include "compression/compressor.h"

/* How far an exchange is: zeros before it begins, and after its end. */
struct cmn_parts {
    size_t begun; /* floats of the block */
    int all;      /* and the rest, with the metrics */
};

/* Begins the exchange of n floats of x that travel as `type`; in order. */
typedef void (*cmn_part_begin)(void *self, const struct cmn_exchange *x, float *data, size_t n,
                               enum cmn_dtype type);

/* Gives `begin` what of x is below `upto`, as communicators' begin: whole parts, but for the last, that
 * waits for the metrics. These go with it, or, as they travel with 32 bits, behind it. */
void cmn_parts_begin(struct cmn_parts *p, const struct cmn_exchange *x, size_t upto,
                     enum cmn_dtype type, cmn_part_begin begin, void *self);

/* All that is left. */
void cmn_parts_begin_rest(struct cmn_parts *p, const struct cmn_exchange *x, enum cmn_dtype type,
                          cmn_part_begin begin, void *self);

#endif
