/* Convolutions on the CPU by oneDNN: switching it on, keeping reordered weights, naming its
 * kernels. The process has one set of them, because Darknet's layers pass no network. */
#ifndef CMN_CONVOLUTION_H
#define CMN_CONVOLUTION_H

/* Local, thread-safe. Drops all reordered weights that were kept. If `now` is not 0, no layer's
 * weights change until the next call, so weights that are reordered for a product are kept for that
 * layer's next product. The memory is not freed; it is at most twice that of the weights. */
void cmn_convolution_hold_weights(int now);

/* Local. Switches cmn_convolve() on or off. While it is off, and in a program without oneDNN, the
 * caller of cmn_convolve() computes. */
void cmn_convolution_use(int on);

/* Local. From now on cmn_convolve() rounds the factors of its products to bf16 (7 bits of mantissa),
 * and adds up in 32 bits. Call it before the others. Returns 0 if the processor, or the program,
 * cannot. */
int cmn_convolution_use_bf16(void);

/* Local. Returns a line that names the kernels that oneDNN uses on this processor, or "" without
 * oneDNN. The text is static. */
const char *cmn_convolution_kernels(void);

#endif
