/* Whether oneDNN computes convolutions, weights that it need not reorder each time, and its kernels. */
#ifndef CMN_CONVOLUTION_H
#define CMN_CONVOLUTION_H

/* Local, thread-safe. `now`: until the next call no layer's weights change, so what is reordered
 * for a product is kept for that layer's next one. Forgets what was kept before; its memory stays,
 * twice that of the weights at most. */
#ifdef ONEDNN
void cmn_convolution_hold_weights(int now);
#else
static inline void cmn_convolution_hold_weights(int now)
{
    (void)now;
}
#endif

/* Local. Whether cmn_convolve() computes from now on; until then, and in a program without oneDNN,
 * the caller does. */
void cmn_convolution_use(int on);

/* Local. A line that says which kernels of oneDNN are for this processor; "" without it. Static. */
const char *cmn_convolution_kernels(void);

#endif
