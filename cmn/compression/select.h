/* Selects the k values of largest magnitude among many, exactly and in few passes over memory.
 * Local. */
#ifndef CMN_SELECT_H
#define CMN_SELECT_H

#include <stddef.h>
#include <stdint.h>

/* How many entries index[] and value[] must have for k of n. */
size_t cmn_select_room(size_t n, size_t k);

/* kept[] += fresh[], fresh[] = 0, n floats; then index[] (rising) and value[] become the k of
 * largest magnitude in kept[]. Of equal magnitudes those with the lower index count. NaN is
 * larger than infinity. 1 <= k <= n; n fits 32 bits. */
void cmn_select(float *kept, float *fresh, size_t n, size_t k, uint32_t *index, float *value);

#endif
