/* channels: images in the layouts in which oneDNN computes convolutions on processors with AVX-512.
 * Darknet's images have all pixels of a channel together; here all channels of a pixel are
 * together, or sixteen of them. oneDNN has such reorders, too, which move 2 GB/s where these move
 * 8. All calls are local and thread-safe. */
#ifndef CMN_CHANNELS_H
#define CMN_CHANNELS_H

#include <stddef.h>

enum cmn_channels_layout {
    CMN_CHANNELS_UNKNOWN,
    CMN_CHANNELS_LAST,       /* oneDNN's nhwc */
    CMN_CHANNELS_BY_SIXTEEN, /* oneDNN's nChw16c: the last block has zeros behind the last channel */
};

struct cmn_channels {
    enum cmn_channels_layout layout;
    int images, channels;
    size_t pixels; /* of a channel */
};

/* Returns whether this processor has the instructions: of AVX-512, and for `bf16` of its BF16. */
int cmn_channels_fast(int bf16);

/* The two calls below need what cmn_channels_fast() asks for, except for floats in
 * CMN_CHANNELS_LAST. */

/* Writes images of Darknet's layout to `to` in another one: as floats, or if `bf16` is set rounded to
 * bf16, to nearest, ties to even; subnormal numbers then become 0. */
void cmn_channels_pack(const struct cmn_channels *c, int bf16, void *to, const float *from);

/* Writes floats of such a layout to `to` in Darknet's layout, or adds them to what is there. */
void cmn_channels_unpack(const struct cmn_channels *c, int adds, float *to, const float *from);

#endif
