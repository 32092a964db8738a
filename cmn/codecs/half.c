#include "codecs/half.h"
#include <string.h>
void cmn_half_encode(enum cmn_dtype d, uint16_t *to, const float *from, size_t n)
{
    (void)d;
    for (size_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, from + i, 4);
        to[i] = (uint16_t)(u >> 16);
    }
}
void cmn_half_decode(enum cmn_dtype d, float *to, const uint16_t *from, size_t n)
{
    (void)d;
    for (size_t i = 0; i < n; i++) {
        uint32_t u = (uint32_t)from[i] << 16;
        memcpy(to + i, &u, 4);
    }
}
