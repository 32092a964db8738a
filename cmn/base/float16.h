/* 16-bit floats, in the processor. Local. */
#ifndef CMN_HALF_H
#define CMN_HALF_H

#include <stddef.h>
#include <stdint.h>

#include "config/options.h"

/* n floats to 16 bits (dtype: CMN_FP16 or CMN_BF16) and back, rounded to nearest, ties to even. NaN stays NaN (quiet) and infinity
 * stays infinity; a finite value that 16 bits cannot hold becomes the largest that they can, never infinity: what is cut
 * off is left to error feedback. Small values of fp16 become subnormal. The same bits with any instruction set.
 * `to` and `from` do not overlap. */
void cmn_float16_encode(enum cmn_dtype dtype, uint16_t *to, const float *from, size_t n);
void cmn_float16_decode(enum cmn_dtype dtype, float *to, const uint16_t *from, size_t n);

#endif
