/* float16: casts between 32-bit and 16-bit floats on the CPU. Local. */
#ifndef CMN_FLOAT16_H
#define CMN_FLOAT16_H

#include <stddef.h>
#include <stdint.h>

/* The types in which gradients are sent. */
enum cmn_dtype { CMN_FP32, CMN_FP16, CMN_BF16 };

/* Cast n floats to 16 bits (CMN_FP16 or CMN_BF16) and back, rounded to nearest, ties to even. NaN
 * stays NaN (quiet) and infinity stays infinity. A finite value out of range becomes the largest
 * finite one, never infinity, because error feedback sends the difference later. Small values
 * become subnormal fp16. Every instruction set gives the same bits. `to` and `from` must not
 * overlap. */
void cmn_float16_encode(enum cmn_dtype dtype, uint16_t *to, const float *from, size_t n);
void cmn_float16_decode(enum cmn_dtype dtype, float *to, const uint16_t *from, size_t n);

/* Casts n floats with error feedback: x += error; `to` becomes x in 16 bits; `back` becomes the
 * floats that `to` stands for; error becomes x - back, or 0 where x is NaN or infinite, since that
 * has been sent. `error` may be NULL. No two of the arrays may overlap. */
void cmn_float16_feedback(enum cmn_dtype dtype, uint16_t *to, float *back, float *x, float *error,
                          size_t n);

#endif
