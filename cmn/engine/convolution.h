/* Weights that oneDNN's convolutions need not reorder each time, and its kernels (ONEDNN=1). */
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

/* Local. A line that says which kernels compute here; "" without oneDNN. Static. */
const char *cmn_convolution_kernels(void);

#endif
